#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of its speed `tally bench` keeps beside other work.

usage: bench/beside.py [--rounds N] [--threads N] [--tally PROGRAM] [--json] WITH MODEL [OPTION of tally bench]...

WITH: spin, one busy loop bound to no core; self, a second `tally bench` of the same; or a command of the shell that runs until it is
killed. A round is bench alone, beside WITH, and beside WITH with one thread: one repetition of each. Figures are medians of the rounds,
in tokens per second. The second bench measures its roofs between its pieces, as the first does.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def bench(tally, model, options, threads):
    """The fastest rate of each work, by its name; and the threads that were granted."""
    command = [tally, "bench", model, *options, "-t", str(threads), "-r", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"beside.py: {done.stderr.strip()}")
    document = json.loads(done.stdout)
    rates = {work: max(p["tokens_per_second"] for p in document[work]) for work in ("prefill", "decode") if document[work]}
    return rates, document["threads"]


class Neighbour:
    """A process that runs while this is entered, with all that it starts."""

    def __init__(self, command, seconds):
        self.command, self.seconds = command, seconds

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        time.sleep(self.seconds)

    def __exit__(self, *_):
        ran = self.process.poll() is None
        if ran:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if not ran:
            sys.exit(f"beside.py: what runs beside bench ended before it did: {self.command[-1]}")


def measure(tally, beside, model, options, threads, rounds):
    """A record for each work."""
    samples = []
    for _ in range(rounds):
        begin = time.monotonic()
        quiet, granted = bench(tally, model, options, threads)
        loading = min(60, time.monotonic() - begin)  # until a second bench measures
        if beside == "self":
            neighbour = Neighbour([tally, "bench", model, *options, "-t", str(threads), "-r", "1000000"], loading)
        else:
            neighbour = Neighbour(["sh", "-c", "while :; do :; done" if beside == "spin" else beside], 0.2)
        with neighbour:
            samples.append((quiet, bench(tally, model, options, threads)[0], bench(tally, model, options, 1)[0]))
    records = []
    for work in samples[0][0]:
        of = lambda f: statistics.median(f(*(s[work] for s in sample)) for sample in samples)
        records.append({"beside": beside, "work": work, "threads": granted, "rounds": rounds,
                        "quiet_tokens_per_second": of(lambda q, b, o: q), "tokens_per_second": of(lambda q, b, o: b),
                        "one_thread_tokens_per_second": of(lambda q, b, o: o), "ratio_of_quiet": of(lambda q, b, o: b / q),
                        "ratio_of_one_thread": of(lambda q, b, o: b / o)})
    return records


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0], add_help=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tally", default=os.path.join(ROOT, "build/release/engine/tally"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("beside")
    parser.add_argument("model")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    records = measure(given.tally, given.beside, given.model, given.options, given.threads, max(1, given.rounds))
    if given.json:
        print(json.dumps(records, indent=2))
        return
    print(f"{'work':8} {'quiet':>9} {'beside it':>9} {'1 thread':>9} {'of quiet':>9} {'of 1 thread':>11}")
    for r in records:
        print(f"{r['work']:8} {r['quiet_tokens_per_second']:9.2f} {r['tokens_per_second']:9.2f} "
              f"{r['one_thread_tokens_per_second']:9.2f} {r['ratio_of_quiet']:9.2f} {r['ratio_of_one_thread']:11.2f}")


if __name__ == "__main__":
    main()
