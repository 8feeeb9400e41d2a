#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Held-out bits per character of interpolated modified Kneser-Ney 5-grams, over characters and over BPE tokens.

usage: kneser_ney.py tinyshakespeare.txt [--tokens 1024] [--order 5] [--figures FILE.json]

Chen and Goodman (1998): three discounts per order from the counts of counts of the training text; the highest order uses
plain counts, the lower ones continuation counts (in how many different contexts); the lowest is interpolated with the
uniform distribution over the alphabet (the 65 characters seen; all tokens but the end of text). The held-out text is one
stream: its first symbols see the end of the training text. Nothing is fitted on it.
"""

import argparse
import collections
import math

from bpe import Bpe, add_figures, read_split


class KneserNey:
    def __init__(self, train, alphabet, order):
        self.order, self.alphabet = order, alphabet
        grams = [collections.Counter(tuple(train[i:i + order]) for i in range(len(train) - order + 1))]
        for n in range(order - 1, 0, -1):  # continuation counts: each distinct longer n-gram counts once for its end
            grams.insert(0, collections.Counter(g[1:] for g in grams[0]))
        self.counts, self.sums, self.discounts = grams, [], []
        for table in grams:
            kinds = collections.Counter(table.values())  # counts of counts
            y = kinds[1] / max(kinds[1] + 2 * kinds[2], 1)
            # Clipped to 0..k: the 65 single characters have too few counts for the estimate.
            self.discounts.append([0.0] + [min(max(k - (k + 1) * y * kinds[k + 1] / max(kinds[k], 1), 0.0), k) for k in (1, 2, 3)])
            sums = {}  # context -> [total, how many symbols follow it once, twice, three times or more]
            for gram, c in table.items():
                s = sums.setdefault(gram[:-1], [0, 0, 0, 0])
                s[0] += c
                s[min(c, 3)] += 1
            self.sums.append(sums)

    def probability(self, context, symbol):
        p = 1 / self.alphabet
        for n in range(self.order):  # n symbols of context
            key = context[len(context) - n:]
            sums = self.sums[n].get(key)
            if sums is None:
                break
            d = self.discounts[n]
            c = self.counts[n].get(key + (symbol,), 0)
            p = (c - d[min(c, 3)] + (d[1] * sums[1] + d[2] * sums[2] + d[3] * sums[3]) * p) / sums[0]
        return p


def bits(train, held_out, alphabet, order):
    model = KneserNey(train, alphabet, order)
    text = train[len(train) - order + 1:] + held_out
    return -sum(math.log2(model.probability(tuple(text[i:i + order - 1]), text[i + order - 1])) for i in range(len(held_out)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--figures", help="the figures are put into this JSON file, beside what it has")
    args = parser.parse_args()
    train, held_out = read_split(args.text)
    n = len(held_out)
    print(f"train {len(train)} characters, held out {n}")
    bpe = Bpe.fit(train, args.tokens)
    a, b = bpe.encode(train), bpe.encode(held_out)
    figures = {"characters": round(bits(list(train), list(held_out), len(set(train)), args.order) / n, 5),
               "tokens": round(bits(a, b, len(bpe.tokens) - 1, args.order) / n, 5)}
    print(f"characters, {args.order}-gram: {figures['characters']} bits per character")
    print(f"BPE tokens ({len(bpe.tokens)}; {len(a)} in train, {len(b)} held out), {args.order}-gram: {figures['tokens']} bits per character")
    if args.figures:
        add_figures(args.figures, {"kneser_ney_order": args.order, "kneser_ney_bits_per_character": figures})


if __name__ == "__main__":
    main()
