#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How near decode with a budget of weights comes to its bound (docs/bigger.md).

usage: bench/streamed.py [--rounds N] [-n TOKENS] [-r REPETITIONS] [--threads N] [--tally PROGRAM] [--no-whole] [--json] MODEL BUDGET...

A round runs `tally bench` with all weights in memory and with each budget. Before and after each of these it reads the model's
file past the page cache: four threads, 4 MB at random places. The bound of a step with experts is
    all other weights + max(chosen experts, bytes missed / disk rate)
where weights take their share of the time of a step in memory, by their bytes. (By layer the maximum is larger, and so is the
part of the bound.) Without experts it is max(weights, bytes read / disk rate). --no-whole: the model does not fit into memory;
weights then take their bytes at the measured rate of memory, which no engine reaches. Figures are medians of rounds. The slots are
warm: bench repeats its tokens once before.
"""
import argparse
import json
import mmap
import os
import random
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
READERS = 4
BLOCK = 4096


def disk_rate(path, record=4 << 20, seconds=1.5):
    """Bytes a second of reads past the page cache."""
    size = os.path.getsize(path)
    record = min(record, size) // BLOCK * BLOCK
    ends, total = time.monotonic() + seconds, [0] * READERS

    def read(at):
        place = random.Random(at)
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        memory = mmap.mmap(-1, record + (4 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.write(bytes(len(memory)))  # all pages are there
        buffer = memoryview(memory)[:record]
        while time.monotonic() < ends:
            total[at] += os.preadv(file, [buffer], place.randrange(0, size - record + 1) // BLOCK * BLOCK)
        os.close(file)

    threads = [threading.Thread(target=read, args=(at,)) for at in range(READERS)]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(total) / (time.monotonic() - begin)


def bench(options, budget=None):
    """The decode of `tally bench`, with the rate of memory beside it."""
    command = [options.tally, "bench", options.model, "-p", "0", "-n", str(options.tokens), "-r", str(options.repetitions), "--json"]
    command += ["--threads", str(options.threads)] if options.threads else []
    command += ["--weights-budget", budget] if budget else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"streamed.py: {done.stderr.strip()}")
    return json.loads(done.stdout)["decode"][0]


def bound(point, memory, rate):
    """Seconds of a step, at least. `memory`: seconds of a step with all weights in memory."""
    if "experts" not in point:
        return max(memory, point.get("disk_bytes_per_token", 0) / rate)
    experts, steps = point["experts"], point["rounds"] * point["tokens"]
    record = experts["bytes_from_disk"] / max(1, experts["misses"])
    used = (experts["hits"] + experts["misses"]) / steps * record
    of_experts = memory * used / point["bytes_per_token"]
    return memory - of_experts + max(of_experts, point["disk_bytes_per_token"] / rate)


def main():
    parser = argparse.ArgumentParser(prog="bench/streamed.py", usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("-r", "--repetitions", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tally", default=os.path.join(ROOT, "build/release/engine/tally"))
    parser.add_argument("--no-whole", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("model")
    parser.add_argument("budgets", nargs="+")
    options = parser.parse_args()
    if not os.path.isfile(options.model):
        sys.exit(f"streamed.py: {options.model} is not one file")
    samples = {budget: [] for budget in options.budgets}
    wholes, disks = [], []
    for _ in range(options.rounds):
        memory = None if options.no_whole else 1 / bench(options)["tokens_per_second"]
        for budget in options.budgets:
            rate = disk_rate(options.model)
            point = bench(options, budget)
            rate = (rate + disk_rate(options.model)) / 2
            disks.append(rate)
            if options.no_whole:
                memory = point["bytes_per_token"] / point["read_bytes_per_second"]
            least = bound(point, memory, rate)
            experts = point.get("experts")
            samples[budget].append({
                "tokens_per_second": point["tokens_per_second"],
                "hit_rate": experts["hits"] / (experts["hits"] + experts["misses"]) if experts else None,
                "disk_bytes_per_token": point.get("disk_bytes_per_token", 0),
                "bound_tokens_per_second": 1 / least,
                "part_of_bound": least * point["tokens_per_second"],
                "disk_bytes_per_second": rate,
            })
        wholes.append(1 / memory)
    rows = {}
    for budget, of_rounds in samples.items():
        rows[budget] = {key: None if of_rounds[0][key] is None else statistics.median(s[key] for s in of_rounds) for key in of_rounds[0]}
        rows[budget]["parts_of_bound"] = [round(s["part_of_bound"], 3) for s in of_rounds]
    document = {"model": options.model, "rounds": options.rounds, "in_memory_tokens_per_second": statistics.median(wholes),
                "disk_bytes_per_second": statistics.median(disks), "budgets": rows}
    if options.json:
        print(json.dumps(document, indent=1))
        return
    print(f"in memory {document['in_memory_tokens_per_second']:.2f} tokens/s{' (a bound)' if options.no_whole else ''}, "
          f"disk {min(disks) / 1e9:.2f} to {max(disks) / 1e9:.2f} GB/s")
    print(f"{'budget':>12} {'hits':>6} {'GB/token':>9} {'tokens/s':>9} {'bound':>7} {'of bound':>9}")
    for budget, row in rows.items():
        hits = "" if row["hit_rate"] is None else f"{row['hit_rate']:.3f}"
        print(f"{budget:>12} {hits:>6} {row['disk_bytes_per_token'] / 1e9:>9.3f} {row['tokens_per_second']:>9.2f} "
              f"{row['bound_tokens_per_second']:>7.2f} {row['part_of_bound']:>9.3f}  {row['parts_of_bound']}")


if __name__ == "__main__":
    main()
