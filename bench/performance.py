#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `tally bench` over a list of models and writes docs/performance.md from its JSON documents.

usage: bench/performance.py [--out FILE] [--save DIR] [--tally PROGRAM] [--grid OPTIONS] [--beside LIST] [--peers ROUNDS]
                            MODEL... [--grid OPTIONS MODEL...]
       bench/performance.py [--out FILE] --from DIR

--grid: what `tally bench` is given for the models after it, as one argument. --save: keeps the documents, MODEL.json each and
run.json; --from: writes the page from such a folder, without measuring. --beside spin,self: also what bench/beside.py measures, of the
models after it, with a prompt of 512 tokens and 64 steps. --peers 1: also llama.cpp on the files after it, by
bench/peers/run_peers.sh with so many rounds; 0: no more.
"""
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys

import beside

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GRID = "-p 512,2048 -n 64 -d 0,4096,16384 --batch 1,8"


def fail(message):
    print(f"performance.py: {message}", file=sys.stderr)
    sys.exit(2)


def machine():
    """What the figures depend on besides the program."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            cpu = next((l.split(":", 1)[1].strip() for l in lines if l.startswith("model name")), cpu)
        with open("/proc/meminfo", encoding="utf-8") as lines:
            memory = int(next(l for l in lines if l.startswith("MemTotal:")).split()[1]) / 2**20
    except (OSError, StopIteration):
        memory = 0
    git = lambda *a: subprocess.run(["git", "-C", ROOT, *a], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
        "commit": git("rev-parse", "--short=12", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else ""),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def peers(model, rounds):
    """Medians of Tally and llama.cpp on the same file, in turn: {"tally": [prefill, decode], "llama.cpp": ..., "ratio": ...}."""
    done = subprocess.run([os.path.join(ROOT, "bench/peers/run_peers.sh"), os.path.abspath(model), "512", "64", str(rounds)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    lines = [re.sub(r"\([^)]*\)", "", l).split() for l in done.stdout.splitlines()]
    found = {l[0]: [float(l[1]), float(l[2])] for l in lines if len(l) == 3 and l[0] in ("tally", "llama.cpp", "ratio")}
    if done.returncode != 0 or len(found) != 3:
        fail(f"{model}: bench/peers/run_peers.sh: exit code {done.returncode}")
    return found


def measure(tally, model, grid, others, rounds):
    """The document of one model, and `busy`: what it does beside others."""
    print(f"{model}: tally bench {grid}", file=sys.stderr)
    done = subprocess.run([tally, "bench", model, *shlex.split(grid), "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{model}: {done.stderr.strip() or 'exit code ' + str(done.returncode)}")
    document = json.loads(done.stdout)
    document["grid"], document["busy"] = grid, []
    for other in others:
        document["busy"] += beside.measure(tally, other, model, ["-p", "512", "-n", "64"], 0, 3)
    if rounds > 0:
        document["peers"] = peers(model, rounds)
    return document


def table(columns, rows):
    """A Markdown table; the first column is flush left."""
    if not rows:
        return []
    lines = ["| " + " | ".join(columns) + " |", "| --- |" + " ---: |" * (len(columns) - 1)]
    return lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows] + [""]


def giga(x):
    return f"{x / 1e9:.2f}" if x else ""  # not measured


def percent(x):
    return f"{100 * x:.1f} %"


def spread(p):
    return "-" if p["spread"] is None else f"±{50 * p['spread']:.1f} %"  # of one round there is none


def rounds(p):
    return f"{p['kept']}/{p['rounds']}" + ("\\*" if p["kept"] == 0 else "")


def rate(x):
    return f"{x:.1f}" if x >= 100 else f"{x:.2f}"


def same(a, b, *keys):
    return all(a[k] == b[k] for k in keys)


def relative(points, p, keys, **base):
    """The rate of `p` beside that of the point that differs in `base` alone; "" where there is none."""
    for q in points:
        if same(p, q, *keys) and all(q[k] == v for k, v in base.items()):
            return f"{p['tokens_per_second'] / q['tokens_per_second']:.2f}"
    return ""


def name(document):
    base = os.path.basename(document["model"].rstrip("/"))
    base = base[:-5] if base.endswith(".gguf") else base
    activations = re.search(r"--activations (\S+)", document["grid"])
    return base + (f", {activations[1]} activations" if activations else "")


def page(run, documents):
    targets = ", ".join(sorted({d["target"] for d in documents}))
    out = [f"# Performance, {targets} kernels", "", "How fast does Tally run, and how near to the machine's own limits is that?", ""]
    out += [f"Written by bench/performance.py from measurements of {run['date']}, commit {run['commit']}. Machine: {run['cpu']}, "
            f"{run['cores']} cores, {run['memory_gib']} GiB, {run['system']}; {targets} kernels.", ""]
    out += ["Every figure comes from `tally bench`, which checks the outputs first and measures the machine's roofs in the same run:",
            "docs/measuring.md. Figures are medians of the rounds kept, those in which the roofs of the point moved",
            "by at most 10 %; \"rounds\" says how many of all; \\*: they moved in every round, and the figures are of all. Spread: half of the",
            "range over the median.", ""]
    out += ["## Models and loading", ""]
    out += table(["model", "weights", "MiB", "load s", "files GB/s", "packed GB/s", "peak / planned memory", "sampling µs"],
                 [[name(d), d["weight_types"], f"{d['load']['packed_bytes'] / 2**20:.0f}", f"{d['load']['seconds']:.2f}",
                   giga(d["load"]["stored_bytes_per_second"]), giga(d["load"]["packed_bytes_per_second"]),
                   f"{d['memory_bytes']['peak_resident'] / d['memory_bytes']['planned']:.3f}",
                   f"{d['sampling']['microseconds_per_token']:.0f}" if d["decode"] else ""] for d in documents])
    out += ["Load: headers, vocabulary and weights, from wherever the system had the file. Sampling: a token by the default sampler, which",
            "decode below does not include.", ""]
    out += ["## Roofs", ""]
    out += table(["model", "threads", "read GB/s", "f32 GFLOP/s", "bf16 GFLOP/s", "int8 GOP/s", "int8 x 4-bit GOP/s"],
                 [[name(d), r["threads"], giga(r["read_bytes_per_second"]), giga(r["f32_flops_per_second"]),
                   giga(r["bf16_flops_per_second"]), giga(r["int8_ops_per_second"]), giga(r["int8_narrow_ops_per_second"])]
                  for d in documents for r in d["roofs_by_threads"]])
    out += ["## Prefill", ""]
    out += table(["model", "tokens", "depth", "threads", "kv", "tokens/s", "spread", "GFLOP/s", "of peak", "of depth 0", "rounds"],
                 [[name(d), p["tokens"], p["depth"], p["threads"], p["kv"], rate(p["tokens_per_second"]), spread(p),
                   giga(p["flops_per_second"]), percent(p["ratio_of_peak"]),
                   relative(d["prefill"], p, ["tokens", "threads", "kv"], depth=0), rounds(p)]
                  for d in documents for p in d["prefill"]])
    out += ["## Decode", ""]
    out += table(["model", "depth", "threads", "kv", "tokens/s", "spread", "MB/token", "GB/s", "of bandwidth", "rounds"],
                 [[name(d), p["depth"], p["threads"], p["kv"], rate(p["tokens_per_second"]), spread(p),
                   f"{p['bytes_per_token'] / 1e6:.2f}", giga(p["bytes_per_second"]), percent(p["ratio_of_bandwidth"]), rounds(p)]
                  for d in documents for p in d["decode"] if p["batch"] == 1])
    batched = [[name(d), p["batch"], p["depth"], p["threads"], p["kv"], rate(p["tokens_per_second"]), spread(p),
                f"{p['bytes_per_token'] / 1e6:.2f}", percent(p["ratio_of_bandwidth"]),
                relative(d["decode"], p, ["tokens", "depth", "threads", "kv"], batch=1), rounds(p)]
               for d in documents for p in d["decode"] if p["batch"] > 1]
    if batched:
        out += ["### Several sequences together", ""]
        out += table(["model", "batch", "depth", "threads", "kv", "tokens/s", "spread", "MB/token", "of bandwidth", "of one sequence",
                      "rounds"], batched)
    busy = [[name(d), p["beside"], p["work"], p["threads"], rate(p["quiet_tokens_per_second"]), rate(p["tokens_per_second"]),
             rate(p["one_thread_tokens_per_second"]), f"{p['ratio_of_quiet']:.2f}", f"{p['ratio_of_one_thread']:.2f}",
             p["rounds"]]
            for d in documents for p in d.get("busy", [])]
    if busy:
        out += ["## Beside other programs", ""]
        out += table(["model", "beside", "work", "threads", "quiet", "beside it", "one thread beside it", "of quiet", "of one thread",
                      "rounds"], busy)
        out += ["Tokens per second. spin: one busy loop, bound to no core; self: a second `tally bench` of the same. By bench/beside.py:",
                "512 tokens, then 64 steps.", ""]
    beside_peers = [[name(d)] + [rate(d["peers"][engine][phase]) for phase in (0, 1) for engine in ("tally", "llama.cpp", "ratio")]
                    for d in documents if "peers" in d]
    if beside_peers:
        out += ["## Beside llama.cpp", ""]
        out += table(["model", "prefill: Tally", "llama.cpp", "ratio", "decode: Tally", "llama.cpp", "ratio"], beside_peers)
        out += ["Tokens per second of 512 tokens and 64 steps, in turn on the same file, by bench/peers/run_peers.sh: node-llama-cpp's",
                "prebuilt library, which takes the best instructions of the processor by itself.", ""]
    grids = sorted({d["grid"] for d in documents})
    return "\n".join(out + ["Measured with:", ""]
                     + [f"    tally bench MODEL {g}" for g in grids]) + "\n"


def main(arguments):
    out, save, source, tally = os.path.join(ROOT, "docs/performance.md"), None, None, os.path.join(ROOT, "build/release/engine/tally")
    grid, others, rounds_of_peers, wanted = GRID, [], 0, []
    options = iter(arguments)
    for a in options:
        value = next(options, None) if a in ("--out", "--save", "--from", "--tally", "--grid", "--beside", "--peers") else None
        if a.startswith("--") and value is None:
            print(__doc__) if a == "--help" else None
            sys.exit(0) if a == "--help" else fail(f"{a}: no such option, or no value")
        if a == "--out":
            out = value
        elif a == "--save":
            save = value
        elif a == "--from":
            source = value
        elif a == "--tally":
            tally = value
        elif a == "--grid":
            grid = value
        elif a == "--beside":
            others = value.split(",")
        elif a == "--peers":
            rounds_of_peers = int(value) if value.isdigit() else fail(f"--peers {value}: no number of rounds")
        else:
            wanted.append((a, grid, others, rounds_of_peers))
    if (source is None) == (not wanted):
        fail("give models to measure, or --from a folder")
    if source is not None:
        with open(os.path.join(source, "run.json"), encoding="utf-8") as f:
            run = json.load(f)
        documents = []
        for file in run["documents"]:
            with open(os.path.join(source, file), encoding="utf-8") as f:
                documents.append(json.load(f))
    else:
        run = machine()
        documents = [measure(tally, *w) for w in wanted]
        if save is not None:
            os.makedirs(save, exist_ok=True)
            run["documents"] = []
            for i, document in enumerate(documents):
                run["documents"].append(f"{i}-{name(document)}.json")
                with open(os.path.join(save, run["documents"][-1]), "w", encoding="utf-8") as f:
                    json.dump(document, f, indent=2)
            with open(os.path.join(save, "run.json"), "w", encoding="utf-8") as f:
                json.dump(run, f, indent=2)
    with open(out, "w", encoding="utf-8") as f:
        f.write(page(run, documents))
    print(f"wrote {out}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
