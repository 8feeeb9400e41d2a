#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the model of communication to account: decode under a slower network, measured beside predicted.

    bench/ranks_model.py [--tally build/release/engine/tally] [--model Llama-3.2-1B] [--type Q8_0] [--pairs 5]

Two ranks of one thread each run the model without and with TALLY_MPI_DELAY_US and TALLY_MPI_BANDWIDTH, in turn. Without a limit a step
takes what it computes and what this machine's own transport takes. Predicted: that and, as the closed forms say (`tally fit --ranks`),
the delay of each gather and its bytes over the bandwidth.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--tally", default="build/release/engine/tally")
parser.add_argument("--model", default="Llama-3.2-1B")
parser.add_argument("--type", default="Q8_0")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--tokens", type=int, default=48)
parser.add_argument("--pairs", type=int, default=5)
parser.add_argument("--delay", type=float, default=100, help="microseconds")
parser.add_argument("--bandwidth", default="1GB/s")
parser.add_argument("--keep", help="the file to make and keep")
flags = parser.parse_args()


def run(arguments, environment=None):
    ended = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if ended.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {ended.stderr}{ended.stdout}")
    return ended.stdout


def step_seconds(file, environment):
    out = run(["mpirun", "-q", "--allow-run-as-root", "--oversubscribe", "-n", str(flags.ranks), flags.tally, "run", file, "-t", "1",
               "--prompt-tokens", "1,2,3,4", "--ignore-eos", "-n", str(flags.tokens), "--json"], environment)
    document = json.loads(out)
    return document["generate_seconds"] / document["decode_steps"]


with tempfile.TemporaryDirectory() as folder:
    file = flags.keep or os.path.join(folder, "model.gguf")
    if not os.path.exists(file):
        run([flags.tally, "synth", flags.model, file, "--type", flags.type])
    fit = json.loads(run([flags.tally, "fit", file, "--ranks", str(flags.ranks), "--network", flags.bandwidth, "--latency",
                          f"{flags.delay}us", "--machine", "read=1GB/s,int8=1G,f32=1G,bf16=1G,threads=1", "--json"]))["fits"][0]
    network = fit["network_seconds"]
    print(f"{flags.model} {flags.type}, {flags.ranks} ranks of a thread; {flags.delay:g} us and {flags.bandwidth} a gather: "
          f"{fit['gathers']} gathers, {fit['by_rank'][0]['received_bytes']:,} bytes received a token: {network * 1e3:.2f} ms")
    print("pair  without  predicted  measured  measured / predicted (tokens/s)")
    ratios = []
    for pair in range(flags.pairs):
        limit = {"TALLY_MPI_DELAY_US": f"{flags.delay:g}", "TALLY_MPI_BANDWIDTH": flags.bandwidth}
        first = pair % 2 == 0
        before = step_seconds(file, {} if first else limit)
        after = step_seconds(file, limit if first else {})
        free, slow = (before, after) if first else (after, before)
        predicted = free + network
        ratios.append(predicted / slow)
        print(f"{pair + 1:4}  {1 / free:7.2f}  {1 / predicted:9.2f}  {1 / slow:8.2f}  {ratios[-1]:.3f}")
    print(f"median of {flags.pairs}: measured / predicted {statistics.median(ratios):.3f}")
