#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Held-out bits per character of the demo model, in float32, from an exported directory and from the unrounded checkpoint.

usage: evaluate.py tinyshakespeare.txt HF_DIR [--checkpoint OUT_DIR/final.pt] [--window 1024] [--ids FILE.npy] [--sample N]
       [--figures FILE.json]

The figure: ids = the tokens of the held-out text (the last tenth of the characters), encoded as one text, without an
end-of-text token. They are cut into windows of 1024 that do not overlap; the last one is shorter. For each window the model
reads, from position 0 with an empty cache, [end-of-text] + window[:-1], and its logits at position i are judged against
window[i]: each token of the held-out text is predicted once. The result is the sum of -log2 softmax(logits)[token] over all
tokens, divided by the number of characters (111,540; the text is ASCII, so also of bytes).
"""

import argparse
import json
import math
import os
import struct

import numpy as np
import torch

import model
from bpe import Bpe, add_figures, read_split


def read_directory(path):
    """-> config, weights as model.forward wants them, merges (None without a tokenizer)."""
    config = json.load(open(os.path.join(path, "config.json")))
    data = open(os.path.join(path, "model.safetensors"), "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    named = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            raw = data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
            kind = {"BF16": torch.bfloat16, "U8": torch.uint8}[t["dtype"]]
            named[name] = torch.frombuffer(bytearray(raw), dtype=kind).view(t["shape"])
    weights = {}
    for name, t in named.items():
        if name.endswith("_blocks"):
            name = name.removesuffix("_blocks")
            t = model.from_mxfp4(torch.stack((t & 15, t >> 4), -1).flatten(-2), named[name + "_scales"].int() - 127)
        elif name.endswith("_scales"):
            continue
        t = t.float()
        weights[name] = torch.cat((t[:, 0::2], t[:, 1::2]), 1) if "gate_up_proj" in name else t
    tokenizer = os.path.join(path, "tokenizer.json")
    merges = json.load(open(tokenizer, encoding="utf-8"))["model"]["merges"] if os.path.exists(tokenizer) else None
    return config, weights, merges and [tuple(m.split(" ")) for m in merges]


@torch.no_grad()
def sample(config, weights, bpe, prompt, n, temperature=0.8, top_p=0.95):
    ids = [bpe.end] + bpe.encode(prompt)
    for _ in range(n):
        p = torch.softmax(model.forward(config, weights, torch.tensor([ids[-config["max_position_embeddings"]:]]))[0][0, -1] / temperature, -1)
        p, order = p.sort(descending=True)
        p[p.cumsum(0) - p > top_p] = 0
        ids.append(order[torch.multinomial(p, 1)].item())
    return bpe.decode(ids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("directory")
    parser.add_argument("--checkpoint", help="final.pt of train.py: the same weights before any rounding")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--ids", help="writes the held-out ids here, int32")
    parser.add_argument("--sample", type=int, default=0, help="tokens to generate from no prompt and from 'ROMEO:\\n'")
    parser.add_argument("--figures", help="the figures are put into this JSON file, beside what it has")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config, weights, merges = read_directory(args.directory)
    bpe = Bpe(merges)
    _, text = read_split(args.text)
    ids = bpe.encode(text)
    assert bpe.decode(ids) == text
    if args.ids:
        np.save(args.ids, np.array(ids, np.int32))
    print(f"{len(text)} characters, {len(ids)} tokens, windows of {args.window}")

    figures = {"held_out_characters": len(text), "held_out_tokens": len(ids), "window": args.window, "bits_per_character": {}}

    def report(name, what, w):
        total = model.bits(config, w, ids, bpe.end, args.window)
        print(f"{what}: {total:.1f} bits, {total / len(text):.5f} bits per character, "
              f"{total / len(ids) * math.log(2):.5f} nats per token", flush=True)
        figures["bits_per_character"][name] = round(total / len(text), 5)

    report("mxfp4", "as exported (MXFP4 experts, BF16 rest)", weights)
    if args.checkpoint:
        exact = {n: w.detach() for n, w in torch.load(args.checkpoint)["average"].items()}
        rest = {n: w if model.is_expert(n) else w.bfloat16().float() for n, w in exact.items()}
        report("unquantised_experts", "unquantised experts (float32), BF16 rest", rest)
        report("float32", "unquantised, all float32", exact)
    if args.figures:
        add_figures(args.figures, figures)
    for prompt in ("", "ROMEO:\n") if args.sample else ():
        torch.manual_seed(1)
        print("-" * 60 + "\n" + sample(config, weights, bpe, prompt, args.sample))


if __name__ == "__main__":
    main()
