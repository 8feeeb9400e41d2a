# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE, fitted here: GPT-2's byte alphabet, o200k's pre-tokenizer (the one of gpt-oss; GGUF name "gpt-4o").

Also the text itself and its split, which every script of this folder must cut alike.
"""

import collections
import hashlib
import json
import os
import random
import re

# tinyshakespeare: 1,115,394 characters of Shakespeare's plays (public domain), as joined by Andrej Karpathy for char-rnn:
# https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
END = "<|endoftext|>"

# o200k as tokenizer.json spells it, and the same for ASCII text in the syntax of Python's re (which knows no \p{..}).
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"])
_ASCII = re.compile("|".join([
    r"[^\r\nA-Za-z0-9]?[A-Z]*[a-z]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\nA-Za-z0-9]?[A-Z]+[a-z]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[0-9]{1,3}| ?[^\sA-Za-z0-9]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"]))


def read_split(path):
    """-> (training text, held-out text): the first nine tenths of the characters and the last tenth."""
    data = open(path, "rb").read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SystemExit(f"{path}: not the tinyshakespeare input.txt that these figures belong to")
    text = data.decode("ascii")
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


def add_figures(path, figures):
    """Puts the figures into a JSON file, beside what it has."""
    have = json.load(open(path)) if os.path.exists(path) else {}
    with open(path, "w") as f:
        json.dump({**have, **figures}, f, indent=2)
        f.write("\n")


def pieces(text):
    found = _ASCII.findall(text)
    assert "".join(found) == text and text.isascii()
    return found


def byte_alphabet():
    """Byte -> the printable character that stands for it (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


class Bpe:
    """Ids: 0..255 the bytes in the order of their characters, then one id per merge, last the end-of-text token."""

    def __init__(self, merges):
        alphabet = byte_alphabet()
        self.merges = [tuple(m) for m in merges]
        self.tokens = sorted(alphabet.values()) + [a + b for a, b in self.merges] + [END]
        self.ids = {t: i for i, t in enumerate(self.tokens)}
        self.end = self.ids[END]
        self.rank = {m: i for i, m in enumerate(self.merges)}
        self.to_char = [alphabet[b] for b in range(256)]
        self.to_byte = {c: b for b, c in alphabet.items()}
        self.cache = {}

    @staticmethod
    def fit(text, n_tokens):
        """Merges the most frequent adjacent pair (ties: the greater pair) until there are n_tokens."""
        alphabet = byte_alphabet()
        words = [[[alphabet[b] for b in w.encode()], n] for w, n in collections.Counter(pieces(text)).items()]
        counts, where = collections.Counter(), collections.defaultdict(set)
        for i, (word, n) in enumerate(words):
            for pair in zip(word, word[1:]):
                counts[pair] += n
                where[pair].add(i)
        merges = []
        while len(merges) < n_tokens - 256 - 1:
            best = max(counts, key=lambda p: (counts[p], p))
            merges.append(best)
            for i in list(where[best]):
                word, n = words[i]
                for pair in zip(word, word[1:]):
                    counts[pair] -= n
                words[i][0] = word = _join(word, best)
                for pair in zip(word, word[1:]):
                    counts[pair] += n
                    where[pair].add(i)
            counts = +counts
        return Bpe(merges)

    def split(self, piece, drop=0.0, rng=random):
        """Ids of one piece. With drop > 0 each possible merge is left out with that chance (BPE-dropout, Provilkov 2020)."""
        word = [self.to_char[b] for b in piece.encode()]
        while len(word) > 1:
            pairs = [(self.rank[p], p) for p in zip(word, word[1:]) if p in self.rank and (drop == 0 or rng.random() >= drop)]
            if not pairs:
                break
            word = _join(word, min(pairs)[1])
        return [self.ids[t] for t in word]

    def encode(self, text):
        out = []
        for piece in pieces(text):
            if piece not in self.cache:
                self.cache[piece] = self.split(piece)
            out += self.cache[piece]
        return out

    def decode(self, ids):
        return bytes(self.to_byte[c] for i in ids if i != self.end for c in self.tokens[i]).decode(errors="replace")

    def to_json(self):
        """The contents of a Hugging Face tokenizer.json. A text is encoded with the end-of-text token before it."""
        special = {"id": self.end, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                   "special": True}
        return json.dumps({
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": [special], "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": O200K}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {END: {"id": END, "ids": [self.end], "tokens": [END]}}},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {t: i for i, t in enumerate(self.tokens[:-1])}, "merges": [f"{a} {b}" for a, b in self.merges]},
        }, ensure_ascii=False, indent=1)


def _join(word, pair):
    out, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return out
