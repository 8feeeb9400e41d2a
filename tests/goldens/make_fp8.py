#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes qwen3_fp8/qwen3-fp8-a-blocks: Qwen3 with weights in FP8, as transformers' fp8 (quant_method) and DeepSeek-V3 store them.

Plain Python, no modules but the standard library: weights and outputs come from it alone, in float64.
E4M3 is decoded by its definition (OCP 8-bit Floating Point Specification v1.0, table 1); a weight is its code times the element of
weight_scale_inv [ceil(rows / 128), ceil(cols / 128)] of its block (DeepSeek-V3, arXiv 2412.19437, section 3.3.2). The model is that of
transformers' modeling_qwen3.py: RMSNorm, norms of each head's query and key, rotary halves, grouped key-value heads, SiLU-gated
feed-forward, the head tied to the embedding.

usage: make_fp8.py OUT        writes OUT/qwen3_fp8/qwen3-fp8-a-blocks
"""
import bisect
import json
import math
import operator
import pathlib
import random
import struct
import sys

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, FFN, VOCAB = 2, 128, 4, 1, 64, 128, 64
EPS, THETA, BLOCK = 1e-6, 10000.0, 128
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "head_dim": HEAD, "hidden_act": "silu",
    "hidden_size": WIDTH, "intermediate_size": FFN, "max_position_embeddings": 64, "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": EPS, "rope_theta": THETA,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": VOCAB,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "weight_block_size": [BLOCK, BLOCK]},
}


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    value = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -value if code & 128 else value


POSITIVE = [e4m3(c) for c in range(127)]  # rising; 127 is NaN


def nearest(x):
    i = min(bisect.bisect_left(POSITIVE, abs(x)), 126)
    if i > 0 and abs(x) - POSITIVE[i - 1] < POSITIVE[i] - abs(x):
        i -= 1
    return i | (128 if x < 0 else 0)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def from_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


class Checkpoint:
    def __init__(self, seed):
        self.random, self.tensors, self.values = random.Random(seed), [], {}

    def plain(self, name, rows, cols, draw):
        bits = [bf16_bits(draw()) for _ in range(rows * cols)]
        shape = [cols] if rows == 1 else [rows, cols]
        self.tensors.append((name, "BF16", shape, struct.pack(f"<{len(bits)}H", *bits)))
        flat = [from_bf16(b) for b in bits]
        self.values[name] = flat if rows == 1 else [flat[r * cols:(r + 1) * cols] for r in range(rows)]

    def coded(self, name, rows, cols):
        x = [[self.random.gauss(0, 1 / math.sqrt(cols)) for _ in range(cols)] for _ in range(rows)]
        x[5] = [v * 1e-4 for v in x[5]]  # subnormal codes
        down, across = -(-rows // BLOCK), -(-cols // BLOCK)
        scales, codes = [], bytearray(rows * cols)
        for i in range(down):
            for j in range(across):
                block = [(r, c) for r in range(i * BLOCK, min(rows, (i + 1) * BLOCK)) for c in range(j * BLOCK, min(cols, (j + 1) * BLOCK))]
                scale = f32(max(abs(x[r][c]) for r, c in block) / 448 * self.random.uniform(1, 1.5))
                scales.append(scale)
                for r, c in block:
                    codes[r * cols + c] = nearest(x[r][c] / scale)
                    x[r][c] = e4m3(codes[r * cols + c]) * scale
        self.tensors.append((name, "F8_E4M3", [rows, cols], bytes(codes)))
        self.tensors.append((name + "_scale_inv", "F32", [down, across], struct.pack(f"<{len(scales)}f", *scales)))
        self.values[name] = x


def make(seed):
    c = Checkpoint(seed)
    norm, weight = lambda: c.random.uniform(0.7, 1.3), lambda: c.random.gauss(0, 0.3)
    c.plain("model.embed_tokens.weight", VOCAB, WIDTH, weight)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        c.plain(at + "input_layernorm.weight", 1, WIDTH, norm)
        c.plain(at + "post_attention_layernorm.weight", 1, WIDTH, norm)
        c.plain(at + "self_attn.q_norm.weight", 1, HEAD, norm)
        c.plain(at + "self_attn.k_norm.weight", 1, HEAD, norm)
        for name, rows, cols in (("self_attn.q_proj", HEADS * HEAD, WIDTH), ("self_attn.k_proj", KV_HEADS * HEAD, WIDTH),
                                 ("self_attn.v_proj", KV_HEADS * HEAD, WIDTH), ("self_attn.o_proj", WIDTH, HEADS * HEAD),
                                 ("mlp.gate_proj", FFN, WIDTH), ("mlp.up_proj", FFN, WIDTH), ("mlp.down_proj", WIDTH, FFN)):
            c.coded(at + name + ".weight", rows, cols)
    c.plain("model.norm.weight", 1, WIDTH, norm)
    return c


def dot(a, b):
    return math.fsum(map(operator.mul, a, b))


def times(matrix, x):
    return [dot(row, x) for row in matrix]


def rms(x, w):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + EPS)
    return [v * scale * g for v, g in zip(x, w)]


def rotate(x, position):
    half, out = HEAD // 2, list(x)
    for i in range(half):
        angle = position * THETA ** (-2 * i / HEAD)
        cos, sin = math.cos(angle), math.sin(angle)
        out[i], out[i + half] = x[i] * cos - x[i + half] * sin, x[i + half] * cos + x[i] * sin
    return out


class Model:
    def __init__(self, values):
        self.w, self.cache = values, [([], []) for _ in range(LAYERS)]

    def step(self, token):
        w, position = self.w, len(self.cache[0][0])
        x = list(w["model.embed_tokens.weight"][token])
        for i in range(LAYERS):
            at = f"model.layers.{i}."
            own = lambda name: w[at + name + ".weight"]
            y = rms(x, own("input_layernorm"))
            heads = lambda v: [v[h * HEAD:(h + 1) * HEAD] for h in range(len(v) // HEAD)]
            q = [rotate(rms(h, own("self_attn.q_norm")), position) for h in heads(times(own("self_attn.q_proj"), y))]
            k = [rotate(rms(h, own("self_attn.k_norm")), position) for h in heads(times(own("self_attn.k_proj"), y))]
            keys, rows = self.cache[i]
            keys.append(k)
            rows.append(heads(times(own("self_attn.v_proj"), y)))
            joined = []
            for h in range(HEADS):
                kv = h // (HEADS // KV_HEADS)
                scores = [dot(q[h], key[kv]) / math.sqrt(HEAD) for key in keys]
                top = max(scores)
                p = [math.exp(s - top) for s in scores]
                total = math.fsum(p)
                joined += [math.fsum(p[t] * rows[t][kv][d] for t in range(len(p))) / total for d in range(HEAD)]
            x = [a + b for a, b in zip(x, times(own("self_attn.o_proj"), joined))]
            y = rms(x, own("post_attention_layernorm"))
            gate, up = times(own("mlp.gate_proj"), y), times(own("mlp.up_proj"), y)
            x = [a + b for a, b in zip(x, times(own("mlp.down_proj"), [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)]))]
        return times(w["model.embed_tokens.weight"], rms(x, w["model.norm.weight"]))


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    out = pathlib.Path(sys.argv[1]) / "qwen3_fp8" / "qwen3-fp8-a-blocks"
    out.mkdir(parents=True, exist_ok=True)
    seed = 20261124
    checkpoint = make(seed)
    draw = random.Random(seed + 1)
    prompts, outputs, largest = [], [], 0.0
    for j, length in enumerate((29, 3)):
        model, prompt = Model(checkpoint.values), [draw.randrange(VOCAB) for _ in range(length)]
        rows = [model.step(t) for t in prompt]
        greedy, margins = [], []
        for _ in range(16):
            order = sorted(range(VOCAB), key=lambda v: -rows[-1][v])
            greedy.append(order[0])
            margins.append(round(rows[-1][order[0]] - rows[-1][order[1]], 5))
            rows.append(model.step(order[0]))
        ids = prompt + greedy
        largest = max(largest, max(abs(v) for row in rows for v in row))
        outputs.append((f"p{j}.ids", "I32", [len(ids)], struct.pack(f"<{len(ids)}i", *ids)))
        flat = [v for row in rows for v in row]
        outputs.append((f"p{j}.logits", "F32", [len(ids), VOCAB], struct.pack(f"<{len(flat)}f", *flat)))
        prompts.append({"prompt": prompt, "greedy": greedy, "greedy_margins": margins})
    write_safetensors(out / "model.safetensors", checkpoint.tensors)
    write_safetensors(out / "golden.safetensors", outputs)
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2, sort_keys=True) + "\n")
    golden = {"case": out.name, "family": "qwen3", "seed": seed, "weights_dtype": "fp8", "oracle": "make_fp8.py, float64",
              "suggested_logits_atol": round(2e-5 * largest, 6), "prompts": prompts}
    (out / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


main()
