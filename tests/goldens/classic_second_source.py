# SPDX-License-Identifier: Apache-2.0
"""Second source of the golden cases of the classic families: numpy, float64, token by token with a cache of keys and values.

`run_gguf` is written from llama.cpp's graphs (src/models/*.cpp) and reads the GGUF form of a case; `run_hf` is a second reading of
the code published with the checkpoints, also for what GGUF cannot hold. Neither shares code with classic_reference.py. Three
differences from llama.cpp are meant: MPT, Falcon and StarCoder run the erf form of GELU, as the published models do, and not the
tanh form; the windows of Phi-3 hide keys; the long divisors of longrope belong to sequences longer than the original context.
"""

import math

import numpy as np

from second_source import gelu_erf, gelu_tanh, neox_rope, silu


def relu(z):
    return np.maximum(z, 0.0)


def layer_norm(x, weight, bias, eps):
    """Of the last dimension; weight and bias may be None."""
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def adjacent_rope(x, position, n_rot, base):
    """ggml's mode NORM: elements 2i and 2i + 1 of each head turn by position * base^(-2i/n_rot)."""
    return turn(x, [(2 * i, 2 * i + 1, position * base ** (-2.0 * i / n_rot)) for i in range(n_rot // 2)])


def turn(x, angles, magnitude=1.0):
    """angles: (element, element, angle) of the pairs that turn. x [heads, D]."""
    out = x.copy()
    for a, b, angle in angles:
        cos, sin = math.cos(angle) * magnitude, math.sin(angle) * magnitude
        out[:, a], out[:, b] = x[:, a] * cos - x[:, b] * sin, x[:, a] * sin + x[:, b] * cos
    return out


def ggml_slope(head, heads, largest):
    """The slope of ggml's softmax with ALiBi."""
    floor = 1 << int(math.floor(math.log2(heads)))
    if head < floor:
        return (2.0 ** (-largest / floor)) ** (head + 1)
    return (2.0 ** (-(largest / 2.0) / floor)) ** (2 * (head - floor) + 1)


class Cache:
    """Keys and values of the tokens so far, by layer."""

    def __init__(self):
        self.layers = {}

    def attend(self, layer, q, k, v, scale, window=None, slopes=None, key_bias=None):
        """q [Hq, D]; k and v [Hk, D] join the cache. A window shows the last `window` tokens, this one counted. slopes [Hq]: a
        key's distance times the slope is taken off its score. key_bias(h, j) is added to the score of key j."""
        keys, values = self.layers.setdefault(layer, ([], []))
        keys.append(k)
        values.append(v)
        first = max(0, len(keys) - window) if window else 0
        out = []
        for h in range(len(q)):
            group = h // (len(q) // len(k))
            scores = []
            for j in range(first, len(keys)):
                score = float(q[h] @ keys[j][group]) * scale
                score -= slopes[h] * (len(keys) - 1 - j) if slopes is not None else 0.0
                scores.append(score + (key_bias(h, j) if key_bias else 0.0))
            weights = np.exp(np.array(scores) - max(scores))
            weights /= weights.sum()
            out.append(sum(w * values[first + j][group] for j, w in enumerate(weights)))
        return np.concatenate(out)


# llama.cpp's graphs.


class Gguf:
    def __init__(self, keys, tensors, total):
        self.architecture, self.keys, self.tensors, self.total = keys["general.architecture"], keys, tensors, total
        self.cache = Cache()

    def key(self, name, otherwise=None):
        return self.keys.get(f"{self.architecture}.{name}", otherwise)

    def linear(self, name, x):
        y = self.tensors[name + ".weight"] @ x
        return y + self.tensors[name + ".bias"] if name + ".bias" in self.tensors else y

    def norm(self, name, x):
        eps = self.key("attention.layer_norm_epsilon")
        if eps is not None:
            return layer_norm(x, self.tensors[name + ".weight"], self.tensors.get(name + ".bias"), eps)
        return rms_norm(x, self.tensors[name + ".weight"], self.key("attention.layer_norm_rms_epsilon"))

    def q_k_v(self, i, x, d, heads, kv_heads):
        """From attn_qkv, or from attn_q, attn_k and attn_v."""
        if f"blk.{i}.attn_qkv.weight" in self.tensors:
            fused = self.linear(f"blk.{i}.attn_qkv", x)
            q, k, v = fused[:heads * d], fused[heads * d:(heads + kv_heads) * d], fused[(heads + kv_heads) * d:]
        else:
            q, k, v = (self.linear(f"blk.{i}.attn_{name}", x) for name in "qkv")
        return q.reshape(heads, d), k.reshape(kv_heads, d), v.reshape(kv_heads, d)

    def rope(self, x, position, adjacent):
        dim = self.key("rope.dimension_count", x.shape[1])
        base, factors = self.key("rope.freq_base", 10000.0), np.ones(dim // 2)
        if "rope_factors_long.weight" in self.tensors:
            original = self.key("rope.scaling.original_context_length", self.key("context_length"))
            factors = self.tensors[f"rope_factors_{'long' if self.total > original else 'short'}.weight"]
        pairs = [(2 * i, 2 * i + 1) if adjacent else (i, i + dim // 2) for i in range(dim // 2)]
        angles = [(a, b, position * base ** (-2.0 * i / dim) / factors[i]) for i, (a, b) in enumerate(pairs)]
        return turn(x, angles, self.key("rope.scaling.attn_factor", 1.0))

    def logits(self, token, position):
        return GRAPHS[self.architecture](self, token, position)


def head_sizes(m):
    heads = m.key("attention.head_count")
    return m.key("attention.key_length", m.key("embedding_length") // heads), heads, m.key("attention.head_count_kv", heads)


def plain_ffn(act):
    return lambda m, i, x: m.linear(f"blk.{i}.ffn_down", act(m.linear(f"blk.{i}.ffn_up", x)))


def gated_ffn(act):
    return lambda m, i, x: m.linear(f"blk.{i}.ffn_down", act(m.linear(f"blk.{i}.ffn_gate", x)) * m.linear(f"blk.{i}.ffn_up", x))


def phi3_ffn(m, i, x):
    both = m.linear(f"blk.{i}.ffn_up", x)
    return m.linear(f"blk.{i}.ffn_down", silu(both[:len(both) // 2]) * both[len(both) // 2:])


def sequential(ffn, adjacent=False, rope=True, alibi=None, window=None, start=lambda m, x, position: x):
    """A graph: attention, then the feed-forward network, each with its norm. alibi and window are functions of the model."""
    def graph(m, token, position):
        d, heads, kv_heads = head_sizes(m)
        residual = m.key("residual_scale", 1.0)
        slopes = [ggml_slope(h, heads, alibi(m)) for h in range(heads)] if alibi else None
        x = start(m, m.tensors["token_embd.weight"][token], position)
        for i in range(m.key("block_count")):
            q, k, v = m.q_k_v(i, m.norm(f"blk.{i}.attn_norm", x), d, heads, kv_heads)
            if rope:
                q, k = m.rope(q, position, adjacent), m.rope(k, position, adjacent)
            attended = m.cache.attend(i, q, k, v, 1 / math.sqrt(d), window(m) if window else None, slopes)
            x = x + residual * m.linear(f"blk.{i}.attn_output", attended)
            x = x + residual * ffn(m, i, m.norm(f"blk.{i}.ffn_norm", x))
        x = m.norm("output_norm", x)
        return m.tensors.get("output.weight", m.tensors["token_embd.weight"]) @ x / m.key("logit_scale", 1.0)
    return graph


def mpt(m, token, position):
    d, heads, _ = head_sizes(m)
    limit = m.key("attention.clamp_kqv")
    slopes = [ggml_slope(h, heads, m.key("attention.max_alibi_bias")) for h in range(heads)]
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.key("block_count")):
        q, k, v = m.q_k_v(i, m.norm(f"blk.{i}.attn_norm", x), d, heads, heads)
        if limit is not None:
            q, k, v = (np.minimum(np.maximum(t, -limit), limit) for t in (q, k, v))
        x = x + m.linear(f"blk.{i}.attn_output", m.cache.attend(i, q, k, v, 1 / math.sqrt(d), slopes=slopes))
        x = x + plain_ffn(gelu_erf)(m, i, m.norm(f"blk.{i}.ffn_norm", x))
    return m.tensors["token_embd.weight"] @ m.norm("output_norm", x)


def falcon(m, token, position):
    d, heads, kv_heads = head_sizes(m)
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.key("block_count")):
        to_ffn = to_attention = m.norm(f"blk.{i}.attn_norm", x)
        if f"blk.{i}.attn_norm_2.weight" in m.tensors:
            to_attention = m.norm(f"blk.{i}.attn_norm_2", x)
        q, k, v = m.q_k_v(i, to_attention, d, heads, kv_heads)
        q, k = neox_rope(q, position, d, 10000.0), neox_rope(k, position, d, 10000.0)
        attended = m.linear(f"blk.{i}.attn_output", m.cache.attend(i, q, k, v, 1 / math.sqrt(d)))
        x = x + attended + plain_ffn(gelu_erf)(m, i, to_ffn)
    return m.tensors.get("output.weight", m.tensors["token_embd.weight"]) @ m.norm("output_norm", x)


def phi2(m, token, position):
    d, heads, kv_heads = head_sizes(m)
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.key("block_count")):
        t = m.norm(f"blk.{i}.attn_norm", x)
        q, k, v = m.q_k_v(i, t, d, heads, kv_heads)
        q, k = m.rope(q, position, False) / math.sqrt(d), m.rope(k, position, False)
        x = x + m.linear(f"blk.{i}.attn_output", m.cache.attend(i, q, k, v, 1.0)) + plain_ffn(gelu_tanh)(m, i, t)
    return m.linear("output", m.norm("output_norm", x))


GRAPHS = {
    "bloom": sequential(plain_ffn(gelu_tanh), rope=False, alibi=lambda m: 8.0,
                        start=lambda m, x, position: m.norm("token_embd_norm", x)),
    "mpt": mpt,
    "falcon": falcon,
    "starcoder": sequential(plain_ffn(gelu_erf), rope=False,
                            start=lambda m, x, position: x + m.tensors["position_embd.weight"][position]),
    "starcoder2": sequential(plain_ffn(gelu_tanh)),
    "phi2": phi2,
    "phi3": sequential(phi3_ffn, window=lambda m: m.key("attention.sliding_window")),
    "gemma": sequential(gated_ffn(gelu_tanh), start=lambda m, x, position: x * math.sqrt(len(x))),
    "internlm2": sequential(gated_ffn(silu), adjacent=True),
    "minicpm": sequential(gated_ffn(silu), adjacent=True, start=lambda m, x, position: x * m.key("embedding_scale")),
}


def run_gguf(keys, tensors, ids):
    """-> logits [T, vocabulary]."""
    model = Gguf(keys, tensors, len(ids))
    return np.array([model.logits(token, position) for position, token in enumerate(ids)])


# The published code a second time, for what GGUF cannot hold.


def bf16(x):
    """Rounded to bf16, to the nearest, ties to even."""
    bits = int(np.float32(x).view(np.uint32))
    return float(np.uint32((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).view(np.float32))


ACTIVATIONS = {"relu": relu, "gelu": gelu_erf, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "silu": silu}


class HuggingFace:
    def __init__(self, config, tensors, total):
        self.c, self.t, self.total, self.cache = config, tensors, total, Cache()

    def linear(self, name, x):
        y = self.t[name + ".weight"] @ x
        return y + self.t[name + ".bias"] if name + ".bias" in self.t else y

    def layer_norm(self, name, x, eps=1e-5):
        return layer_norm(x, self.t.get(name + ".weight"), self.t.get(name + ".bias"), eps)

    def rms_norm(self, name, x):
        return rms_norm(x, self.t[name + ".weight"], self.c["rms_norm_eps"])

    def heads(self, name, x, d):
        return self.linear(name, x).reshape(-1, d)


def rows_of(fused, d, blocks):
    """The heads whose numbers, counted in blocks of d rows, are listed."""
    return np.array([fused[d * b:d * (b + 1)] for b in blocks])


def opt(m, token, position):
    c, d = m.c, m.c["hidden_size"] // m.c["num_attention_heads"]
    root = "model.decoder." if "model.decoder.embed_tokens.weight" in m.t else "decoder."
    before, act = c["do_layer_norm_before"], ACTIVATIONS[c["activation_function"]]
    x = m.t[root + "embed_tokens.weight"][token]
    if c["word_embed_proj_dim"] != c["hidden_size"]:
        x = m.linear(root + "project_in", x)
    x = x + m.t[root + "embed_positions.weight"][position + 2]
    for i in range(c["num_hidden_layers"]):
        b = f"{root}layers.{i}."
        residual = x
        if before:
            x = m.layer_norm(b + "self_attn_layer_norm", x)
        q, k, v = (m.heads(f"{b}self_attn.{name}_proj", x, d) for name in "qkv")
        x = residual + m.linear(b + "self_attn.out_proj", m.cache.attend(i, q * d ** -0.5, k, v, 1.0))
        if not before:
            x = m.layer_norm(b + "self_attn_layer_norm", x)
        residual = x
        if before:
            x = m.layer_norm(b + "final_layer_norm", x)
        x = residual + m.linear(b + "fc2", act(m.linear(b + "fc1", x)))
        if not before:
            x = m.layer_norm(b + "final_layer_norm", x)
    if before and not c["_remove_final_layer_norm"]:
        x = m.layer_norm(root + "final_layer_norm", x)
    if c["word_embed_proj_dim"] != c["hidden_size"]:
        x = m.linear(root + "project_out", x)
    return m.t[root + "embed_tokens.weight"] @ x


def bloom(m, token, position):
    c, heads = m.c, m.c["n_head" if "n_head" in m.c else "num_attention_heads"]
    d = c["hidden_size" if "hidden_size" in c else "n_embed"] // heads
    root = "transformer." if "transformer.ln_f.weight" in m.t else ""
    slopes = [ggml_slope(h, heads, 8.0) for h in range(heads)]
    x = m.layer_norm(root + "word_embeddings_layernorm", m.t[root + "word_embeddings.weight"][token])
    for i in range(c["n_layer"]):
        b = f"{root}h.{i}."
        t = m.layer_norm(b + "input_layernorm", x)
        fused = m.linear(b + "self_attention.query_key_value", t)
        q, k, v = (rows_of(fused, d, [3 * h + part for h in range(heads)]) for part in range(3))
        attended = m.linear(b + "self_attention.dense", m.cache.attend(i, q, k, v, d ** -0.5, slopes=slopes))
        x = attended + (t if c["apply_residual_connection_post_layernorm"] else x)
        t = m.layer_norm(b + "post_attention_layernorm", x)
        out = m.linear(b + "mlp.dense_4h_to_h", gelu_tanh(m.linear(b + "mlp.dense_h_to_4h", t)))
        x = out + (t if c["apply_residual_connection_post_layernorm"] else x)
    return m.t[root + "word_embeddings.weight"] @ m.layer_norm(root + "ln_f", x)


def gptj(m, token, position):
    d, n_rot = m.c["n_embd"] // m.c["n_head"], m.c["rotary_dim"]
    x = m.t["transformer.wte.weight"][token]
    for i in range(m.c["n_layer"]):
        b = f"transformer.h.{i}."
        t = m.layer_norm(b + "ln_1", x)
        q, k, v = (m.heads(f"{b}attn.{name}_proj", t, d) for name in "qkv")
        q, k = adjacent_rope(q, position, n_rot, 10000.0), adjacent_rope(k, position, n_rot, 10000.0)
        attended = m.linear(b + "attn.out_proj", m.cache.attend(i, q, k, v, 1 / math.sqrt(d)))
        x = attended + m.linear(b + "mlp.fc_out", gelu_tanh(m.linear(b + "mlp.fc_in", t))) + x
    return m.linear("lm_head", m.layer_norm("transformer.ln_f", x))


def gptneo(m, token, position):
    c, d = m.c, m.c["hidden_size"] // m.c["num_heads"]
    x = m.t["transformer.wte.weight"][token] + m.t["transformer.wpe.weight"][position]
    for i, kind in enumerate(c["attention_layers"]):
        b = f"transformer.h.{i}."
        t = m.layer_norm(b + "ln_1", x)
        q, k, v = (m.heads(f"{b}attn.attention.{name}_proj", t, d) for name in "qkv")
        attended = m.cache.attend(i, q, k, v, 1.0, c["window_size"] if kind == "local" else None)
        x = x + m.linear(b + "attn.attention.out_proj", attended)
        x = x + m.linear(b + "mlp.c_proj", gelu_tanh(m.linear(b + "mlp.c_fc", m.layer_norm(b + "ln_2", x))))
    return m.t["transformer.wte.weight"] @ m.layer_norm("transformer.ln_f", x)


def hf_falcon(m, token, position):
    c, heads = m.c, m.c["num_attention_heads"]
    d, new = c["hidden_size"] // heads, c["new_decoder_architecture"]
    groups = c["num_kv_heads"] if new else 1 if c["multi_query"] else heads
    of_group = heads // groups + 2  # blocks of d rows
    slopes = [bf16(ggml_slope(h, heads, 8.0)) for h in range(heads)]
    x = m.t["transformer.word_embeddings.weight"][token]
    for i in range(c["num_hidden_layers"]):
        b = f"transformer.h.{i}."
        two = new and c.get("num_ln_in_parallel_attn", 2) == 2
        to_attention = m.layer_norm(b + ("ln_attn" if two else "input_layernorm"), x)
        to_mlp = m.layer_norm(b + "ln_mlp", x) if two else to_attention
        fused = m.linear(b + "self_attention.query_key_value", to_attention)
        q = rows_of(fused, d, [g * of_group + h for g in range(groups) for h in range(of_group - 2)])
        k = rows_of(fused, d, [g * of_group + of_group - 2 for g in range(groups)])
        v = rows_of(fused, d, [g * of_group + of_group - 1 for g in range(groups)])
        if not c["alibi"]:
            base = c.get("rope_theta", 10000.0)
            q, k = neox_rope(q, position, d, base), neox_rope(k, position, d, base)
        attended = m.linear(b + "self_attention.dense", m.cache.attend(
            i, q, k, v, 1 / math.sqrt(d), key_bias=(lambda h, j: bf16(slopes[h] * j) / math.sqrt(d)) if c["alibi"] else None))
        if not new and not c["parallel_attn"]:
            x, attended = x + attended, 0
            to_mlp = m.layer_norm(b + "post_attention_layernorm", x)
        x = x + attended + m.linear(b + "mlp.dense_4h_to_h", gelu_erf(m.linear(b + "mlp.dense_h_to_4h", to_mlp)))
    return m.t["transformer.word_embeddings.weight"] @ m.layer_norm("transformer.ln_f", x)


def gptbigcode(m, token, position):
    c, heads = m.c, m.c["n_head"]
    d, act = c["n_embd"] // heads, ACTIVATIONS[c["activation_function"]]
    x = m.t["transformer.wte.weight"][token] + m.t["transformer.wpe.weight"][position]
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        fused = m.linear(b + "attn.c_attn", m.layer_norm(b + "ln_1", x))
        if c["multi_query"]:
            q, k, v = (rows_of(fused, d, blocks) for blocks in (range(heads), [heads], [heads + 1]))
        else:
            q, k, v = (rows_of(fused, d, range(part, 3 * heads, 3)) for part in range(3))
        x = x + m.linear(b + "attn.c_proj", m.cache.attend(i, q, k, v, d ** -0.5 if c["scale_attn_weights"] else 1.0))
        x = x + m.linear(b + "mlp.c_proj", act(m.linear(b + "mlp.c_fc", m.layer_norm(b + "ln_2", x))))
    return m.t["transformer.wte.weight"] @ m.layer_norm("transformer.ln_f", x)


def starcoder2(m, token, position):
    c, d = m.c, m.c["hidden_size"] // m.c["num_attention_heads"]
    x = m.t["model.embed_tokens.weight"][token]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = m.layer_norm(b + "input_layernorm", x)
        q, k, v = (m.heads(f"{b}self_attn.{name}_proj", t, d) for name in "qkv")
        q, k = neox_rope(q, position, d, c["rope_theta"]), neox_rope(k, position, d, c["rope_theta"])
        x = x + m.linear(b + "self_attn.o_proj", m.cache.attend(i, q, k, v, d ** -0.5, c["sliding_window"]))
        t = m.layer_norm(b + "post_attention_layernorm", x)
        x = x + m.linear(b + "mlp.c_proj", gelu_tanh(m.linear(b + "mlp.c_fc", t)))
    return m.t["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"] @ m.layer_norm("model.norm", x)


def phi(m, token, position):
    c, d = m.c, m.c["hidden_size"] // m.c["num_attention_heads"]
    n_rot = int(d * c["partial_rotary_factor"])
    x = m.t["model.embed_tokens.weight"][token]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = m.layer_norm(b + "input_layernorm", x)
        q, k, v = (m.heads(f"{b}self_attn.{name}_proj", t, d) for name in "qkv")
        if c["qk_layernorm"]:
            q, k = m.layer_norm(b + "self_attn.q_layernorm", q), m.layer_norm(b + "self_attn.k_layernorm", k)
        q, k = neox_rope(q, position, n_rot, c["rope_theta"]), neox_rope(k, position, n_rot, c["rope_theta"])
        x = x + m.linear(b + "self_attn.dense", m.cache.attend(i, q, k, v, d ** -0.5)) \
            + m.linear(b + "mlp.fc2", gelu_tanh(m.linear(b + "mlp.fc1", t)))
    return m.linear("lm_head", m.layer_norm("model.final_layernorm", x))


def internlm2(m, token, position):
    c, d = m.c, m.c["hidden_size"] // m.c["num_attention_heads"]
    groups = c["num_key_value_heads"]
    of_group = c["num_attention_heads"] // groups + 2
    base, longest = c["rope_theta"], c["max_position_embeddings"]
    if c["rope_scaling"] and m.total > longest:
        factor = c["rope_scaling"]["factor"]
        base = base * (factor * m.total / longest - factor + 1) ** (d / (d - 2))
    x = m.t["model.tok_embeddings.weight"][token]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        fused = m.linear(b + "attention.wqkv", m.rms_norm(b + "attention_norm", x)).reshape(groups, of_group, d)
        q, k, v = fused[:, :of_group - 2].reshape(-1, d), fused[:, of_group - 2], fused[:, of_group - 1]
        q, k = neox_rope(q, position, d, base), neox_rope(k, position, d, base)
        x = x + m.linear(b + "attention.wo", m.cache.attend(i, q, k, v, 1 / math.sqrt(d)))
        t = m.rms_norm(b + "ffn_norm", x)
        x = x + m.linear(b + "feed_forward.w2", silu(m.linear(b + "feed_forward.w1", t)) * m.linear(b + "feed_forward.w3", t))
    return m.t["output.weight"] @ m.rms_norm("model.norm", x)


def minicpm(m, token, position):
    c, d = m.c, m.c["hidden_size"] // m.c["num_attention_heads"]
    scaling, factor = c["rope_scaling"], c["scale_depth"] / math.sqrt(c["num_hidden_layers"])
    original = scaling["original_max_position_embeddings"]
    stretch = c["max_position_embeddings"] / original
    divisors = scaling["long_factor" if m.total > original else "short_factor"]
    pairs = [(j, j + d // 2, position / divisors[j] * c["rope_theta"] ** (-2.0 * j / d)) for j in range(d // 2)]
    x = m.t["model.embed_tokens.weight"][token] * c["scale_emb"]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = m.rms_norm(b + "input_layernorm", x)
        q, k, v = (m.heads(f"{b}self_attn.{name}_proj", t, d) for name in "qkv")
        q, k = (turn(heads, pairs, math.sqrt(1 + math.log(stretch) / math.log(original))) for heads in (q, k))
        x = x + m.linear(b + "self_attn.o_proj", m.cache.attend(i, q, k, v, d ** -0.5)) * factor
        t = m.rms_norm(b + "post_attention_layernorm", x)
        t = silu(m.linear(b + "mlp.gate_proj", t)) * m.linear(b + "mlp.up_proj", t)
        x = x + m.linear(b + "mlp.down_proj", t) * factor
    x = m.rms_norm("model.norm", x) / (c["hidden_size"] / c["dim_model_base"])
    return m.t["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"] @ x


def mini_gpt(m, token, position):
    c, heads = m.c, m.c["n_head"]
    d = c["n_embd"] // heads
    x = m.t["transformer.wte.weight"][token]
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        fused = m.linear(b + "attn.c_attn", m.layer_norm(b + "ln_1", x))
        q, k, v = (rows_of(fused, d, range(part * heads, (part + 1) * heads)) for part in range(3))
        q, k = neox_rope(q, position, d, c["rope_theta"]), neox_rope(k, position, d, c["rope_theta"])
        x = x + m.linear(b + "attn.c_proj", m.cache.attend(i, q, k, v, d ** -0.5))
        x = x + m.linear(b + "mlp.c_proj", gelu_erf(m.linear(b + "mlp.c_fc", m.layer_norm(b + "ln_2", x))))
    return m.t["transformer.wte.weight"] @ m.layer_norm("transformer.ln_f", x)


READINGS = {"opt": opt, "bloom": bloom, "gptj": gptj, "gpt_neo": gptneo, "falcon": hf_falcon, "gpt_bigcode": gptbigcode,
            "starcoder2": starcoder2, "phi": phi, "internlm2": internlm2, "minicpm": minicpm, "mini-gpt": mini_gpt}


def run_hf(config, tensors, ids):
    """-> logits [T, vocabulary]. tensors: arrays by Hugging Face name."""
    model = HuggingFace(config, {name: np.asarray(t, dtype=np.float64) for name, t in tensors.items()}, len(ids))
    return np.array([READINGS[config["model_type"]](model, token, position) for position, token in enumerate(ids)])
