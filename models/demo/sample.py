#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lets models write: the text of which train.py --sampled learns how they go on.

usage: sample.py TALLY OUT.txt N MODEL.gguf...

Each model writes N texts of 1,000 tokens from the beginning-of-text token, sampled at temperature 1 with nothing cut off: their
own distribution. Seeds are 1 to N.
"""

import concurrent.futures
import os
import subprocess
import sys


def write(tally, gguf, seed):
    options = "-n 1000 --ctx 1024 --threads 1 --temp 1 --top-k 0 --top-p 1 --min-p 0 --repeat-penalty 1 --seed"
    done = subprocess.run([tally, "run", gguf, *options.split(), str(seed)], capture_output=True, check=True)
    return done.stdout.decode("ascii", errors="ignore")  # a token of a single byte may be no character; the text has only ASCII


def main():
    tally, out, n, models = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    jobs = [(tally, gguf, seed) for seed in range(1, n + 1) for gguf in models]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool, open(out, "w", encoding="utf-8") as f:
        for text in pool.map(lambda job: write(*job), jobs):
            f.write(text + "\n")


if __name__ == "__main__":
    main()
