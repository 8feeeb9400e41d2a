# SPDX-License-Identifier: Apache-2.0
"""Second source of the golden cases: Qwen2-MoE, GPT-NeoX and Gemma 3 from their GGUF form, in numpy, float64.

Written from llama.cpp's graphs (src/models/{qwen2moe,gptneox,gemma3}.cpp) and its converter (conversion/{qwen,gptneox,gemma}.py),
not from reference.py: it shares no code with it and runs token by token with a cache of keys and values, as llama.cpp decodes.
One difference from llama.cpp is meant: it runs GPT-NeoX with the tanh form of GELU, the published model has the erf form.
"""

import math

import numpy as np


class Layers:
    """Keys of the architecture, tensors, and the keys and values of the tokens so far."""

    def __init__(self, keys, tensors):
        self.architecture = keys["general.architecture"]
        self.keys, self.tensors = keys, tensors
        self.count = self.key("block_count")
        self.cache = [([], []) for _ in range(self.count)]

    def key(self, name, otherwise=None):
        return self.keys.get(f"{self.architecture}.{name}", otherwise)

    def linear(self, layer, name, x):
        y = self.tensors[f"blk.{layer}.{name}.weight"] @ x
        bias = self.tensors.get(f"blk.{layer}.{name}.bias")
        return y if bias is None else y + bias

    def rms(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.key("attention.layer_norm_rms_epsilon")) * self.tensors[name]

    def norm(self, x, name):
        x = x - x.mean()
        x = x / math.sqrt((x * x).mean() + self.key("attention.layer_norm_epsilon"))
        return x * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def attention(self, layer, q, k, v, scale, window=None):
        """q [Hq, D]; k and v [Hk, D] join the cache. A window shows the last `window` tokens, this one counted."""
        ks, vs = self.cache[layer]
        ks.append(k)
        vs.append(v)
        ks, vs = (np.array(c[-window:] if window else c) for c in (ks, vs))
        out = []
        for h, query in enumerate(q):
            group = h * k.shape[0] // q.shape[0]
            weights = np.exp((s := ks[:, group] @ query * scale) - s.max())
            out.append(weights @ vs[:, group] / weights.sum())
        return np.concatenate(out)


def neox_rope(x, position, n_rot, base, scale=1.0):
    """ggml's mode NEOX: elements i and i + n_rot/2 of each head turn by position * scale * base^(-2i/n_rot)."""
    out = x.copy()
    for i in range(n_rot // 2):
        angle = position * scale * base ** (-2.0 * i / n_rot)
        a, b = x[:, i], x[:, i + n_rot // 2]
        out[:, i] = a * math.cos(angle) - b * math.sin(angle)
        out[:, i + n_rot // 2] = a * math.sin(angle) + b * math.cos(angle)
    return out


def silu(z):
    return z / (1 + np.exp(-z))


def gelu_tanh(z):
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * z * (1 + 0.044715 * z * z)))


def gelu_erf(z):
    return np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in z])


def qwen2moe_ffn(m, layer, x, renormalise):
    t = m.tensors
    if f"blk.{layer}.ffn_gate_inp.weight" not in t:  # a dense layer, which this architecture has in no GGUF file
        return m.linear(layer, "ffn_down", silu(m.linear(layer, "ffn_gate", x)) * m.linear(layer, "ffn_up", x))
    logits = m.linear(layer, "ffn_gate_inp", x)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    chosen = np.argsort(-probabilities)[:m.key("expert_used_count")]
    weights = probabilities[chosen]
    if renormalise:
        weights = weights / weights.sum()
    gate, up, down = (t[f"blk.{layer}.ffn_{name}_exps.weight"] for name in ("gate", "up", "down"))
    routed = sum(w * (down[e] @ (silu(gate[e] @ x) * (up[e] @ x))) for e, w in zip(chosen, weights))
    z = t[f"blk.{layer}.ffn_gate_inp_shexp.weight"] @ x
    shared = m.linear(layer, "ffn_down_shexp", silu(m.linear(layer, "ffn_gate_shexp", x)) * m.linear(layer, "ffn_up_shexp", x))
    return routed + silu(z) / z * shared  # silu(z) / z is how that graph writes a sigmoid


def qwen2moe(m, token, position, renormalise=False):
    t, heads, kv_heads = m.tensors, m.key("attention.head_count"), m.key("attention.head_count_kv")
    x = t["token_embd.weight"][token]
    d, base = len(x) // heads, m.key("rope.freq_base")
    for i in range(m.count):
        h = m.rms(x, f"blk.{i}.attn_norm.weight")
        q = neox_rope(m.linear(i, "attn_q", h).reshape(heads, d), position, d, base)
        k = neox_rope(m.linear(i, "attn_k", h).reshape(kv_heads, d), position, d, base)
        v = m.linear(i, "attn_v", h).reshape(kv_heads, d)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, 1 / math.sqrt(d)))
        x = x + qwen2moe_ffn(m, i, m.rms(x, f"blk.{i}.ffn_norm.weight"), renormalise)
    return t.get("output.weight", t["token_embd.weight"]) @ m.rms(x, "output_norm.weight")


def gptneox(m, token, position):
    t, heads, n_rot = m.tensors, m.key("attention.head_count"), m.key("rope.dimension_count")
    x = t["token_embd.weight"][token]
    d = len(x) // heads
    for i in range(m.count):
        q, k, v = m.linear(i, "attn_qkv", m.norm(x, f"blk.{i}.attn_norm")).reshape(3, heads, d)
        q, k = neox_rope(q, position, n_rot, 10000.0), neox_rope(k, position, n_rot, 10000.0)
        attended = m.linear(i, "attn_output", m.attention(i, q, k, v, 1 / math.sqrt(d)))
        before_ffn = x if m.key("use_parallel_residual") else x + attended
        h = m.norm(before_ffn, f"blk.{i}.ffn_norm")
        x = x + attended + m.linear(i, "ffn_down", gelu_erf(m.linear(i, "ffn_up", h)))
    return t["output.weight"] @ m.norm(x, "output_norm")


def gemma3(m, token, position, attention_scale=None, local_base=10000.0, slides=None):
    t, heads, kv_heads = m.tensors, m.key("attention.head_count"), m.key("attention.head_count_kv")
    d = m.key("attention.key_length")
    global_rope = m.key("rope.freq_base"), 1.0 / m.key("rope.scaling.factor", 1.0)
    x = t["token_embd.weight"][token] * math.sqrt(m.key("embedding_length"))
    for i in range(m.count):
        local = slides[i] if slides else i % 6 < 5
        base, scale = (local_base, 1.0) if local else global_rope
        h = m.rms(x, f"blk.{i}.attn_norm.weight")
        q = m.rms(m.linear(i, "attn_q", h).reshape(heads, d), f"blk.{i}.attn_q_norm.weight")
        k = m.rms(m.linear(i, "attn_k", h).reshape(kv_heads, d), f"blk.{i}.attn_k_norm.weight")
        v = m.linear(i, "attn_v", h).reshape(kv_heads, d)
        q, k = neox_rope(q, position, d, base, scale), neox_rope(k, position, d, base, scale)
        attended = m.attention(i, q * (attention_scale or 1 / math.sqrt(d)), k, v, 1.0,
                               m.key("attention.sliding_window") if local else None)
        x = x + m.rms(m.linear(i, "attn_output", attended), f"blk.{i}.post_attention_norm.weight")
        h = m.rms(x, f"blk.{i}.ffn_norm.weight")
        h = m.linear(i, "ffn_down", gelu_tanh(m.linear(i, "ffn_gate", h)) * m.linear(i, "ffn_up", h))
        x = x + m.rms(h, f"blk.{i}.post_ffw_norm.weight")
    return t.get("output.weight", t["token_embd.weight"]) @ m.rms(x, "output_norm.weight")


GRAPHS = {"qwen2moe": qwen2moe, "gptneox": gptneox, "gemma3": gemma3}


def run(keys, tensors, ids, **options):
    """-> logits [T, vocabulary]. Options: what the config says and GGUF has no key for."""
    layers = Layers(keys, tensors)
    graph = GRAPHS[layers.architecture]
    return np.array([graph(layers, token, position, **options) for position, token in enumerate(ids)])
