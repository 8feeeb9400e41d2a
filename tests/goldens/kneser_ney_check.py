# SPDX-License-Identifier: Apache-2.0
"""models/demo/kneser_ney.py, which the bundled model is measured against: that its probabilities are some, and, where the text is
here, that figures.json has what it says. usage: kneser_ney_check.py MODELS_DEMO TEXT"""

import collections
import json
import math
import os
import random
import sys

demo, text = sys.argv[1:]
sys.path.insert(0, demo)
sys.dont_write_bytecode = True
from bpe import Bpe, read_split  # noqa: E402
from kneser_ney import KneserNey, bits  # noqa: E402


def check(condition, what):
    if not condition:
        raise SystemExit(f"kneser_ney_check.py: {what}")


def near(a, b, what):
    check(abs(a - b) < 1e-9, f"{what}: {a} and {b}")


rng = random.Random(3)
letters = "abcdefg"
stream = [rng.choice(letters if i % 3 else "ab") for i in range(3000)]
model = KneserNey(stream, len(letters), 4)
contexts = [tuple(stream[i:i + 3]) for i in range(0, 2000, 97)] + [tuple("gag"), tuple("zzz"), tuple("zab")]
for context in contexts:
    near(sum(model.probability(context, c) for c in letters), 1, f"the probabilities after {context}")

# Two symbols of context at most, from the definition: Chen and Goodman (1998), equations 21 to 24 and section 4.2.
model = KneserNey(stream, len(letters), 2)
pairs = collections.Counter(zip(stream, stream[1:]))
ends = collections.Counter(b for _, b in pairs)


def discounts(counts):
    n = collections.Counter(counts.values())
    y = n[1] / max(n[1] + 2 * n[2], 1)
    return [0] + [min(max(k - (k + 1) * y * n[k + 1] / max(n[k], 1), 0), k) for k in (1, 2, 3)]


def single(symbol):
    d = discounts(ends)
    freed = sum(d[min(c, 3)] for c in ends.values())
    return (max(ends[symbol] - d[min(ends[symbol], 3)], 0) + freed / len(letters)) / sum(ends.values())


def after(context, symbol):
    d = discounts(pairs)
    followers = {b: c for (a, b), c in pairs.items() if a == context}
    freed = sum(d[min(c, 3)] for c in followers.values())
    c = followers.get(symbol, 0)
    return (max(c - d[min(c, 3)], 0) + freed * single(symbol)) / sum(followers.values())


for a in letters:
    for b in letters:
        near(model.probability((a,), b), after(a, b), f"the probability of {b} after {a}")

if not os.path.exists(text):
    print(f"skipped: the figures of models/demo: {text} is not here")
    sys.exit(0)
train, held_out = read_split(text)
figures = json.load(open(os.path.join(demo, "figures.json")))
check(len(held_out) == figures["held_out_characters"], "the held-out text has another length")
bpe = Bpe.fit(train, 1024)
streams = {"characters": (list(train), list(held_out), len(set(train))),
           "tokens": (bpe.encode(train), bpe.encode(held_out), len(bpe.tokens) - 1)}
check(len(streams["tokens"][1]) == figures["held_out_tokens"], "the held-out text has another number of tokens")
for unit, (seen, unseen, alphabet) in streams.items():
    measured = bits(seen, unseen, alphabet, figures["kneser_ney_order"]) / len(held_out)
    stated = figures["kneser_ney_bits_per_character"][unit]
    print(f"{unit}: {measured:.5f} bits per character, {stated} stated")
    check(math.isclose(measured, stated, abs_tol=1e-5), "not what figures.json has")
