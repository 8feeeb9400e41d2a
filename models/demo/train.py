#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains Tally's demo model: gpt-oss in small, on Shakespeare. Needs Debian's python3-torch and python3-numpy, nothing else.

usage: train.py tinyshakespeare.txt OUT_DIR [--validate]     (stops and goes on: run it again with the same OUT_DIR)

Text: public domain; see bpe.py for its source and checksum. The tokenizer and the weights come from the first nine tenths
of the characters. The last tenth is not read here. --validate trains on the first eight tenths and measures on the ninth,
for choosing settings.

Distillation (README says when): --teachers are final.pt of earlier runs, whose mean of probabilities is learnt instead of the next
token, over the training text and over --sampled, a text that they wrote; --start are the weights to begin with.

Against overfitting (a million characters for millions of weights): dropout, weight decay, BPE-dropout (each pass over the
text cuts words anew; none towards the end), an exponential average of the weights. Matrices are trained by Muon, the rest
by AdamW. In the last part the experts are rounded to MXFP4 on the way forward, and windows grow from 256 to 1024 tokens.
"""

import argparse
import json
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

import model
from bpe import Bpe, pieces, read_split


class Text:
    """Token ids of the training text, cut anew for each pass."""

    def __init__(self, bpe, text, drop, seed):
        rng = random.Random(seed)
        words = pieces(text)
        self.number = {p: i for i, p in enumerate(dict.fromkeys(words))}
        self.words = np.array([self.number[p] for p in words])
        self.whole = [bpe.split(p) for p in self.number]
        self.cuts = [[bpe.split(p, drop, rng) for p in self.number] for _ in range(16)]
        self.end = bpe.end

    def windows(self, length, dropped, seed):
        """All windows of one pass in random order, inputs and targets [n, length]; an end-of-text token begins each input.
        dropped: the share of words that are cut by BPE-dropout."""
        rng = np.random.default_rng(seed)
        which = np.where(rng.random(len(self.words)) < dropped, rng.integers(16, size=len(self.words)), -1)
        parts = [(self.cuts[v] if v >= 0 else self.whole)[i] for v, i in zip(which.tolist(), self.words.tolist())]
        ids = np.fromiter((t for p in parts for t in p), np.int64)
        start = rng.integers(length)
        n = (len(ids) - start) // length
        target = ids[start:start + n * length].reshape(n, length)
        target = torch.from_numpy(target[rng.permutation(n)])
        return torch.cat((torch.full((n, 1), self.end), target[:, :-1]), 1), target


def orthogonal(g):
    """The nearest matrix with singular values near 1 (Newton-Schulz, coefficients of Jordan et al. 2024), for a stack of matrices."""
    wide = g.shape[-2] <= g.shape[-1]
    x = g if wide else g.transpose(-1, -2)
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(5):
        a = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x if wide else x.transpose(-1, -2)


class Optimizer:
    def __init__(self, w, args):
        self.w, self.args = w, args
        self.muon = [n for n in w if n.endswith(("_proj.weight", "gate_up_proj", "down_proj"))]
        self.momentum = {n: torch.zeros_like(w[n]) for n in self.muon}
        others = [n for n in w if n not in self.momentum]
        tables = [w[n] for n in others if w[n].dim() > 1 and "bias" not in n]
        vectors = [w[n] for n in others if w[n].dim() == 1 or "bias" in n]
        self.adam = torch.optim.AdamW([{"params": tables, "weight_decay": args.adam_decay}, {"params": vectors, "weight_decay": 0}],
                                      lr=args.adam_lr, betas=(0.9, 0.98))

    @torch.no_grad()
    def step(self, rate, momentum):
        for group in self.adam.param_groups:
            group["lr"] = self.args.adam_lr * rate
        self.adam.step()
        for n in self.muon:
            w, m = self.w[n], self.momentum[n]
            m.lerp_(w.grad, 1 - momentum)
            update = orthogonal(w.grad.lerp(m, momentum))
            w.mul_(1 - self.args.lr * rate * self.args.decay)
            w.sub_(update, alpha=self.args.lr * rate * max(1, w.shape[-2] / w.shape[-1]) ** 0.5)
        for w in self.w.values():
            w.grad = None


def read_weights(path, bpe):
    """-> configuration, weights of a final.pt; its tokenizer must be this one."""
    saved = torch.load(path)
    assert saved["merges"] == bpe.merges, f"{path} has another tokenizer"
    return saved["config"], {n: w.detach() for n, w in saved["average"].items()}


@torch.no_grad()
def mean_probabilities(teachers, ids):
    return sum(model.forward(config, w, ids)[0].softmax(-1) for config, w in teachers) / len(teachers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--validate", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--batch", type=int, default=4096, help="tokens per step")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--decay", type=float, default=0.4)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--adam-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.22)
    parser.add_argument("--bpe-dropout", type=float, default=0.1)
    parser.add_argument("--average", type=float, default=0.995)
    parser.add_argument("--long-from", type=float, default=0.88, help="share of the steps after which windows are long")
    parser.add_argument("--round-from", type=float, default=0.75, help="... after which experts are rounded to MXFP4")
    parser.add_argument("--whole-from", type=float, default=0.7, help="... after which BPE-dropout has faded out")
    parser.add_argument("--teachers", nargs="+", default=[], help="final.pt of earlier runs: their mean is learnt")
    parser.add_argument("--sampled", help="text that the teachers wrote, read beside the training text")
    parser.add_argument("--start", help="final.pt to start from")
    parser.add_argument("--minutes", type=float, default=3, help="between checkpoints")
    parser.add_argument("--config", default="{}", help="JSON: changes to the model's configuration")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)

    train, _ = read_split(args.text)
    measured = None
    if args.validate:
        cut = len(train) * 8 // 9
        train, measured = train[:cut], train[cut:]
    bpe = Bpe.fit(train, model.CONFIG["vocab_size"])
    config = {**model.CONFIG, **json.loads(args.config)}
    assert config["eos_token_id"] == bpe.end
    if args.sampled:
        train += open(args.sampled, encoding="utf-8").read()
    text = Text(bpe, train, args.bpe_dropout, args.seed)
    w = model.new_weights(config)
    teachers = [read_weights(path, bpe) for path in args.teachers]
    if args.start:
        for n, t in read_weights(args.start, bpe)[1].items():
            w[n].data.copy_(t)
    average = {n: t.detach().clone() for n, t in w.items()}
    optimizer = Optimizer(w, args)
    at = {"step": 0, "epoch": 0, "row": 0, "length": 0, "dropped": 0.0}
    checkpoint = os.path.join(args.out, "checkpoint.pt")
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        at = saved["at"]
        optimizer.adam.load_state_dict(saved["adam"])
        for mine, theirs in ((w, saved["weights"]), (average, saved["average"]), (optimizer.momentum, saved["momentum"])):
            for n in mine:
                mine[n].data.copy_(theirs[n])
        torch.set_rng_state(saved["rng"])
        print("goes on from step", at["step"], flush=True)

    def save(done):
        state = {"average": average, "merges": bpe.merges, "config": config, "at": at, "done": done}
        if not done:
            state |= {"weights": w, "momentum": optimizer.momentum, "adam": optimizer.adam.state_dict(), "rng": torch.get_rng_state()}
        torch.save(state, checkpoint + ".new")
        os.replace(checkpoint + ".new", checkpoint if not done else os.path.join(args.out, "final.pt"))

    def measure():
        n = len(measured)
        ids = bpe.encode(measured)
        for window in (256, 1024):
            print("  validation, bits per character, windows of", window,
                  *(f"{model.bits(config, average, ids, bpe.end, window, quantise=q) / n:.4f}" for q in (False, True)), flush=True)

    print(f"{sum(t.numel() for t in w.values())} parameters", flush=True)
    inputs, epoch_key, sum_loss, seen, since, saved_at = None, None, 0.0, 0, time.time(), time.time()
    while at["step"] < args.steps:
        done = at["step"] / args.steps
        length = 1024 if done >= args.long_from else 256
        dropped = min(1, max(0, 2 * (1 - done / args.whole_from)))
        if inputs is not None and at["row"] + args.batch // length > len(inputs) or at["length"] not in (0, length):
            inputs, at["epoch"], at["row"] = None, at["epoch"] + 1, 0
        if inputs is None:
            if at["row"] == 0:
                at["length"], at["dropped"] = length, dropped
            inputs, targets = text.windows(length, at["dropped"], [args.seed, at["epoch"]])
        rows = slice(at["row"], at["row"] + args.batch // length)
        logits, balance = model.forward(config, w, inputs[rows], args.dropout, done >= args.round_from)
        if teachers:
            loss = -(mean_probabilities(teachers, inputs[rows]) * logits.log_softmax(-1)).sum(-1).mean()
        else:
            loss = F.cross_entropy(logits.flatten(0, 1), targets[rows].flatten())
        (loss + config["router_aux_loss_coef"] * balance).backward()
        warm = min(1, (at["step"] + 1) / 100)
        optimizer.step(warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done))), 0.85 + 0.1 * warm)
        at["step"] += 1
        at["row"] = rows.stop
        keep = min(args.average, at["step"] / (at["step"] + 10))
        with torch.no_grad():
            for n, t in average.items():
                t.lerp_(w[n], 1 - keep)
        sum_loss, seen = sum_loss + loss.item(), seen + 1
        if at["step"] % 20 == 0:
            print(f"step {at['step']} epoch {at['epoch']} loss {sum_loss / seen:.4f} nats per token, balance {balance.item():.3f}, "
                  f"{seen * args.batch / (time.time() - since):.0f} tokens/s", flush=True)
            sum_loss, seen, since = 0.0, 0, time.time()
        if args.validate and at["step"] % 200 == 0 and at["step"] < args.steps:
            measure()
            since = time.time()
        if time.time() - saved_at > args.minutes * 60:
            save(False)
            saved_at = time.time()
    save(True)
    if args.validate:
        measure()


if __name__ == "__main__":
    main()
