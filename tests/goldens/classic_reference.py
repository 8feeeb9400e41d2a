# SPDX-License-Identifier: Apache-2.0
"""Reference models of the classic families in plain torch, one function a family, written from the published modelling code.

    forward(config, params, ids) -> logits [T, vocabulary]

OPT, BLOOM, MPT, GPT-J, GPT-Neo, Falcon, GPT-BigCode, StarCoder2, Phi, Phi-3, Gemma 1, InternLM2, MiniCPM, and Mini-GPT, a model of
a course. Shapes and options come from the Hugging Face config; a key that it lacks has the default of transformers' configuration
class. A bias is used where the checkpoint has one. Arithmetic is in the type that Params widens to. check_classic.py replaces
single functions of this module to see how far a bug moves the logits; that is why some are one line long.
"""

import math

import torch

from reference import gelu_erf, gelu_tanh, inverse_frequencies, kv_head_of, linear, rms_norm, rope, silu

ACTIVATIONS = {"gelu": gelu_erf, "gelu_new": gelu_tanh, "gelu_fast": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh,
               "relu": torch.relu, "silu": silu}

# Pieces.


def dense(p, name, x):
    return linear(x, p(name + ".weight"), p.get(name + ".bias"))


def layer_norm(p, name, x, eps):
    """Weight and bias are each used where they are stored."""
    centred = x - x.mean(-1, keepdim=True)
    x = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps)
    weight, bias = p.get(name + ".weight"), p.get(name + ".bias")
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def activation(name):
    return ACTIVATIONS[name]


def mlp(p, up, down, act, x):
    return dense(p, down, act(dense(p, up, x)))


def gated(p, gate, up, down, act, x):
    return dense(p, down, act(dense(p, gate, x)) * dense(p, up, x))


def prefix_of(p, *candidates):
    """Published checkpoints of a family differ in the prefix of all names. The first (prefix, tensor) that is stored counts."""
    return next(prefix for prefix, tensor in candidates if p.has(prefix + tensor))


def tied(c):
    return c.get("tie_word_embeddings", True)


def attend(q, k, v, scale, window=None, bias=None):
    """q [T, Hq, D], k and v [T, Hk, D] -> [T, Hq * D]. Query i sees key j where 0 <= i - j (< window). bias [Hq, T or 1, T] is
    added to the scaled scores."""
    n, kv_head = len(q), kv_head_of(q.shape[1], k.shape[1])
    scores = torch.einsum("ihd,jhd->hij", q, k[:, kv_head]) * scale
    scores = scores if bias is None else scores + bias
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    visible = (distance >= 0) & (distance < (n if window is None else window))
    p = torch.softmax(scores.masked_fill(~visible, float("-inf")), -1)
    return torch.einsum("hij,jhd->ihd", p, v[:, kv_head]).flatten(1)


def alibi_slopes(heads, largest, dtype):
    """2^(-largest (h + 1) / n) for the first n heads, n the greatest power of two that is not above heads. The heads that remain
    have the first, third, fifth and so on of the slopes of 2 n heads."""
    n = 2 ** int(math.log2(heads))
    exponents = [largest * (h + 1) / n for h in range(n)] + [largest * (2 * h + 1) / (2 * n) for h in range(heads - n)]
    return torch.tensor([2.0 ** -e for e in exponents], dtype=dtype)


def alibi(slopes, n):
    """-> [H, T, T], 0 on the diagonal."""
    distance = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).to(slopes.dtype)
    return -slopes[:, None, None] * distance


def split_thirds(fused, heads):
    """Rows [q; k; v]: all heads of q, then of k, then of v. -> three of [T, H, D]."""
    return fused.view(len(fused), 3, heads, -1).unbind(1)


def split_by_head(fused, heads):
    """Rows of a head together: q, k, v of head 0, then of head 1."""
    return fused.view(len(fused), heads, 3, -1).unbind(2)


def split_by_group(fused, heads, kv_heads):
    """Rows of a kv head together: its query heads, then k, then v."""
    grouped = fused.view(len(fused), kv_heads, heads // kv_heads + 2, -1)
    return grouped[:, :, :-2].flatten(1, 2), grouped[:, :, -2], grouped[:, :, -1]


def split_in_turn(fused, heads, kv_heads):
    """Rows [q; k; v] with fewer heads of k and v."""
    return fused.view(len(fused), heads + 2 * kv_heads, -1).split((heads, kv_heads, kv_heads), 1)


def split_gate_up(fused):
    return fused.chunk(2, -1)


def longrope(dim, base, scaling, n, context, original):
    """-> (frequencies, factor of cos and sin). Sequences of n > original tokens have the long divisors, others the short ones."""
    factor = context / original
    magnitude = scaling.get("attention_factor")
    if magnitude is None:
        magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    divisors = torch.tensor(scaling["long_factor" if n > original else "short_factor"], dtype=torch.float64)
    return 1.0 / (divisors * base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)), magnitude


def rope_tables(c, dim, n, dtype, base=None):
    """cos and sin [T, dim / 2]."""
    base = c.get("rope_theta", 10000.0) if base is None else base
    scaling = c.get("rope_scaling") or {"rope_type": "default"}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("longrope", "su"):
        original = c.get("original_max_position_embeddings") or scaling["original_max_position_embeddings"]
        frequencies, magnitude = longrope(dim, base, scaling, n, c["max_position_embeddings"], original)
    elif kind == "dynamic":
        stretch = max(n / c["max_position_embeddings"], 1)
        base = base * (scaling["factor"] * stretch - (scaling["factor"] - 1)) ** (dim / (dim - 2))
        frequencies, magnitude = inverse_frequencies(dim, base, None, torch.float64)
    else:
        frequencies, magnitude = inverse_frequencies(dim, base, scaling, torch.float64)
    angles = torch.arange(n).to(dtype)[:, None] * frequencies.to(dtype)[None, :]
    return angles.cos() * magnitude, angles.sin() * magnitude


def rope_adjacent(x, tables):
    """Pairs (2i, 2i + 1) of the first elements of each head; the others pass. x [T, heads, D]."""
    cos, sin = tables[0][:, None, :], tables[1][:, None, :]
    dim = 2 * cos.shape[-1]
    a, b = x[..., 0:dim:2], x[..., 1:dim:2]
    return torch.cat([torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2), x[..., dim:]], -1)


# OPT.

OPT_POSITION_OFFSET = 2


def opt_forward(c, p, ids):
    heads, width, eps = c["num_attention_heads"], c["hidden_size"], 1e-5
    n, d, act = len(ids), width // heads, activation(c.get("activation_function", "relu"))
    norm_first = c.get("do_layer_norm_before", True)
    root = prefix_of(p, ("model.decoder.", "embed_tokens.weight"), ("decoder.", "embed_tokens.weight"))
    x = p(root + "embed_tokens.weight")[ids]
    if p.has(root + "project_in.weight"):  # word_embed_proj_dim is not hidden_size
        x = dense(p, root + "project_in", x)
    x = x + p(root + "embed_positions.weight")[torch.arange(n) + OPT_POSITION_OFFSET]
    for i in range(c["num_hidden_layers"]):
        b = f"{root}layers.{i}."
        t = layer_norm(p, b + "self_attn_layer_norm", x, eps) if norm_first else x
        q, k, v = (dense(p, f"{b}self_attn.{name}_proj", t).view(n, heads, d) for name in "qkv")
        x = x + dense(p, b + "self_attn.out_proj", attend(q, k, v, d ** -0.5))
        x = x if norm_first else layer_norm(p, b + "self_attn_layer_norm", x, eps)
        t = layer_norm(p, b + "final_layer_norm", x, eps) if norm_first else x
        x = x + mlp(p, b + "fc1", b + "fc2", act, t)
        x = x if norm_first else layer_norm(p, b + "final_layer_norm", x, eps)
    if norm_first and not c.get("_remove_final_layer_norm", False):
        x = layer_norm(p, root + "final_layer_norm", x, eps)
    if p.has(root + "project_out.weight"):
        x = dense(p, root + "project_out", x)
    return linear(x, p(root + "embed_tokens.weight" if tied(c) else "lm_head.weight"))


# BLOOM.


def bloom_sizes(c):
    """Heads and width, under either of their published names."""
    return c.get("n_head") or c["num_attention_heads"], c.get("n_embed") or c["hidden_size"]


def bloom_forward(c, p, ids):
    heads, width = bloom_sizes(c)
    n, d, eps = len(ids), width // heads, c.get("layer_norm_epsilon", 1e-5)
    root = prefix_of(p, ("transformer.", "word_embeddings.weight"), ("", "word_embeddings.weight"))
    bias = alibi(alibi_slopes(heads, 8, p.dtype), n)
    x = layer_norm(p, root + "word_embeddings_layernorm", p(root + "word_embeddings.weight")[ids], eps)
    for i in range(c["n_layer"]):
        b = f"{root}h.{i}."
        normed = layer_norm(p, b + "input_layernorm", x, eps)
        residual = normed if c.get("apply_residual_connection_post_layernorm", False) else x
        q, k, v = split_by_head(dense(p, b + "self_attention.query_key_value", normed), heads)
        x = residual + dense(p, b + "self_attention.dense", attend(q, k, v, d ** -0.5, bias=bias))
        normed = layer_norm(p, b + "post_attention_layernorm", x, eps)
        residual = normed if c.get("apply_residual_connection_post_layernorm", False) else x
        x = residual + mlp(p, b + "mlp.dense_h_to_4h", b + "mlp.dense_4h_to_h", gelu_tanh, normed)
    return linear(layer_norm(p, root + "ln_f", x, eps), p(root + "word_embeddings.weight"))


# MPT. The fused matrix is [q; k; v]; no norm or matrix has a bias.


def clip(fused, limit):
    return fused.clamp(-limit, limit)


def mpt_forward(c, p, ids):
    heads, width, options = c["n_heads"], c["d_model"], c.get("attn_config") or {}
    n, eps, root = len(ids), c.get("layer_norm_epsilon", 1e-5), "transformer."
    scale = options.get("softmax_scale") or (width // heads) ** -0.5
    bias = alibi(alibi_slopes(heads, options.get("alibi_bias_max", 8), p.dtype), n)
    x = p(root + "wte.weight")[ids]
    for i in range(c["n_layers"]):
        b = f"{root}blocks.{i}."
        fused = dense(p, b + "attn.Wqkv", layer_norm(p, b + "norm_1", x, eps))
        if options.get("clip_qkv"):
            fused = clip(fused, options["clip_qkv"])
        q, k, v = split_thirds(fused, heads)
        x = x + dense(p, b + "attn.out_proj", attend(q, k, v, scale, bias=bias))
        x = x + mlp(p, b + "ffn.up_proj", b + "ffn.down_proj", activation("gelu"), layer_norm(p, b + "norm_2", x, eps))
    return linear(layer_norm(p, root + "norm_f", x, eps), p(root + "wte.weight"))


# GPT-J. Both blocks read one norm of the layer's input.


def gptj_forward(c, p, ids):
    heads, width, eps = c["n_head"], c["n_embd"], c.get("layer_norm_epsilon", 1e-5)
    n, d, act = len(ids), width // heads, activation(c.get("activation_function", "gelu_new"))
    tables = rope_tables(c, c.get("rotary_dim", 64), n, p.dtype, base=10000.0)
    x = p("transformer.wte.weight")[ids]
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        t = layer_norm(p, b + "ln_1", x, eps)
        q, k, v = (dense(p, f"{b}attn.{name}_proj", t).view(n, heads, d) for name in "qkv")
        attended = attend(rope_adjacent(q, tables), rope_adjacent(k, tables), v, d ** -0.5)
        x = x + dense(p, b + "attn.out_proj", attended) + mlp(p, b + "mlp.fc_in", b + "mlp.fc_out", act, t)
    return dense(p, "lm_head", layer_norm(p, "transformer.ln_f", x, eps))


# GPT-Neo. Scores are not scaled. Layers marked local see the last window_size keys.


def gptneo_layer_types(c):
    return [kind for kinds, times in c["attention_types"] for _ in range(times) for kind in kinds]


def gptneo_forward(c, p, ids):
    heads, width, eps = c["num_heads"], c["hidden_size"], c.get("layer_norm_epsilon", 1e-5)
    n, d, act = len(ids), width // heads, activation(c.get("activation_function", "gelu_new"))
    x = p("transformer.wte.weight")[ids] + p("transformer.wpe.weight")[:n]
    for i, kind in enumerate(gptneo_layer_types(c)):
        b = f"transformer.h.{i}."
        t = layer_norm(p, b + "ln_1", x, eps)
        q, k, v = (dense(p, f"{b}attn.attention.{name}_proj", t).view(n, heads, d) for name in "qkv")
        window = c.get("window_size", 256) if kind == "local" else None
        x = x + dense(p, b + "attn.attention.out_proj", attend(q, k, v, 1.0, window))
        x = x + mlp(p, b + "mlp.c_fc", b + "mlp.c_proj", act, layer_norm(p, b + "ln_2", x, eps))
    return linear(layer_norm(p, "transformer.ln_f", x, eps), p("transformer.wte.weight" if tied(c) else "lm_head.weight"))


# Falcon: three layouts of the fused matrix and three ways in which the blocks meet.


def falcon_split(c, fused, heads):
    if c.get("new_decoder_architecture", False):
        return split_by_group(fused, heads, c.get("num_kv_heads") or heads)
    if c.get("multi_query", True):  # num_kv_heads has no meaning here
        return split_by_group(fused, heads, 1)
    return split_by_head(fused, heads)


def falcon_is_parallel(c):
    return c.get("new_decoder_architecture", False) or c.get("parallel_attn", True)


def falcon_norms(c, p, b, x, eps):
    """Inputs of attention and of the MLP where both read the layer's input: the same norm of it, or one each."""
    if c.get("new_decoder_architecture", False) and (c.get("num_ln_in_parallel_attn") or 2) == 2:
        return layer_norm(p, b + "ln_attn", x, eps), layer_norm(p, b + "ln_mlp", x, eps)
    t = layer_norm(p, b + "input_layernorm", x, eps)
    return t, t


def falcon_alibi(heads, n, dtype):
    """The published code rounds slopes and biases to bf16. Biases are of the key's position, [H, 1, T]."""
    slopes = alibi_slopes(heads, 8, torch.float32).bfloat16()
    return (slopes[:, None, None] * torch.arange(n)).to(dtype)


def falcon_forward(c, p, ids):
    heads, width = c["num_attention_heads"], c["hidden_size"]
    n, d, eps, root = len(ids), width // heads, c.get("layer_norm_epsilon", 1e-5), "transformer."
    act = activation(c.get("activation", "gelu"))
    tables = rope_tables(c, d, n, p.dtype)
    bias = falcon_alibi(heads, n, p.dtype) * d ** -0.5 if c.get("alibi", False) else None
    x = p(root + "word_embeddings.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        b = f"{root}h.{i}."
        to_attention, to_mlp = falcon_norms(c, p, b, x, eps)
        q, k, v = falcon_split(c, dense(p, b + "self_attention.query_key_value", to_attention), heads)
        if bias is None:
            q, k = rope(q, tables), rope(k, tables)
        attended = dense(p, b + "self_attention.dense", attend(q, k, v, d ** -0.5, bias=bias))
        if not falcon_is_parallel(c):
            to_mlp = layer_norm(p, b + "post_attention_layernorm", x + attended, eps)
        x = x + attended + mlp(p, b + "mlp.dense_h_to_4h", b + "mlp.dense_4h_to_h", act, to_mlp)
    x = layer_norm(p, root + "ln_f", x, eps)
    return linear(x, p(root + "word_embeddings.weight" if tied(c) else "lm_head.weight"))


# GPT-BigCode (StarCoder 1, SantaCoder).


def gptbigcode_split(c, fused, heads):
    return split_in_turn(fused, heads, 1) if c.get("multi_query", True) else split_by_head(fused, heads)


def gptbigcode_forward(c, p, ids):
    heads, width, eps = c["n_head"], c["n_embd"], c.get("layer_norm_epsilon", 1e-5)
    n, d, act = len(ids), width // heads, activation(c.get("activation_function", "gelu_pytorch_tanh"))
    scale = d ** -0.5 if c.get("scale_attn_weights", True) else 1.0
    x = p("transformer.wte.weight")[ids] + p("transformer.wpe.weight")[:n]
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        q, k, v = gptbigcode_split(c, dense(p, b + "attn.c_attn", layer_norm(p, b + "ln_1", x, eps)), heads)
        x = x + dense(p, b + "attn.c_proj", attend(q, k, v, scale))
        x = x + mlp(p, b + "mlp.c_fc", b + "mlp.c_proj", act, layer_norm(p, b + "ln_2", x, eps))
    return linear(layer_norm(p, "transformer.ln_f", x, eps), p("transformer.wte.weight" if tied(c) else "lm_head.weight"))


# StarCoder2.


def starcoder2_forward(c, p, ids):
    heads, width, kv_heads = c["num_attention_heads"], c["hidden_size"], c["num_key_value_heads"]
    n, d, eps = len(ids), width // heads, c.get("norm_epsilon", 1e-5)
    act = activation(c.get("hidden_act", "gelu_pytorch_tanh"))
    tables = rope_tables(c, d, n, p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = layer_norm(p, b + "input_layernorm", x, eps)
        q, k, v = (dense(p, f"{b}self_attn.{name}_proj", t).view(n, h, d)
                   for name, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        attended = attend(rope(q, tables), rope(k, tables), v, d ** -0.5, c.get("sliding_window"))
        x = x + dense(p, b + "self_attn.o_proj", attended)
        x = x + mlp(p, b + "mlp.c_fc", b + "mlp.c_proj", act, layer_norm(p, b + "post_attention_layernorm", x, eps))
    return linear(layer_norm(p, "model.norm", x, eps), p("model.embed_tokens.weight" if tied(c) else "lm_head.weight"))


# Phi 1, 1.5 and 2. Both blocks read one norm of the layer's input; the head has a bias.


def phi_forward(c, p, ids):
    heads, width, eps = c["num_attention_heads"], c["hidden_size"], c.get("layer_norm_eps", 1e-5)
    kv_heads, d = c.get("num_key_value_heads") or heads, width // heads
    n, act = len(ids), activation(c.get("hidden_act", "gelu_new"))
    tables = rope_tables(c, int(d * c.get("partial_rotary_factor", 0.5)), n, p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = layer_norm(p, b + "input_layernorm", x, eps)
        q, k, v = (dense(p, f"{b}self_attn.{name}_proj", t).view(n, h, d)
                   for name, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        if c.get("qk_layernorm", False):  # of each head, one weight and bias for all
            q, k = layer_norm(p, b + "self_attn.q_layernorm", q, eps), layer_norm(p, b + "self_attn.k_layernorm", k, eps)
        attended = attend(rope(q, tables), rope(k, tables), v, d ** -0.5)
        x = x + dense(p, b + "self_attn.dense", attended) + mlp(p, b + "mlp.fc1", b + "mlp.fc2", act, t)
    return dense(p, "lm_head", layer_norm(p, "model.final_layernorm", x, eps))


# Phi-3 and Phi-4.


def phi3_forward(c, p, ids):
    heads, eps, kv_heads = c["num_attention_heads"], c.get("rms_norm_eps", 1e-5), c.get("num_key_value_heads")
    n, d, act = len(ids), c["hidden_size"] // heads, activation(c.get("hidden_act", "silu"))
    tables = rope_tables(c, int(d * c.get("partial_rotary_factor", 1.0)), n, p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = rms_norm(x, p(b + "input_layernorm.weight"), eps)
        q, k, v = split_in_turn(dense(p, b + "self_attn.qkv_proj", t), heads, kv_heads or heads)
        attended = attend(rope(q, tables), rope(k, tables), v, d ** -0.5, c.get("sliding_window"))
        x = x + dense(p, b + "self_attn.o_proj", attended)
        gate, up = split_gate_up(dense(p, b + "mlp.gate_up_proj", rms_norm(x, p(b + "post_attention_layernorm.weight"), eps)))
        x = x + dense(p, b + "mlp.down_proj", act(gate) * up)
    x = rms_norm(x, p("model.norm.weight"), eps)
    return linear(x, p("lm_head.weight" if not c.get("tie_word_embeddings", False) else "model.embed_tokens.weight"))


# Gemma 1. Stored norms are w, applied as 1 + w.


def gemma_norm(x, w, eps):
    return rms_norm(x, 1.0 + w, eps)


def gemma_embedding_scale(c):
    return c["hidden_size"] ** 0.5


def gemma_activation(c):
    """hidden_act of the first published files says gelu, and means the tanh form: hidden_activation counts, or its default."""
    return activation(c.get("hidden_activation") or "gelu_pytorch_tanh")


def gemma_forward(c, p, ids):
    heads, kv_heads, d, eps = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], c.get("rms_norm_eps", 1e-6)
    n, act, tables = len(ids), gemma_activation(c), rope_tables(c, d, len(ids), p.dtype)
    x = p("model.embed_tokens.weight")[ids] * gemma_embedding_scale(c)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = gemma_norm(x, p(b + "input_layernorm.weight"), eps)
        q, k, v = (dense(p, f"{b}self_attn.{name}_proj", t).view(n, h, d)
                   for name, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        x = x + dense(p, b + "self_attn.o_proj", attend(rope(q, tables), rope(k, tables), v, d ** -0.5))
        t = gemma_norm(x, p(b + "post_attention_layernorm.weight"), eps)
        x = x + gated(p, b + "mlp.gate_proj", b + "mlp.up_proj", b + "mlp.down_proj", act, t)
    return linear(gemma_norm(x, p("model.norm.weight"), eps), p("model.embed_tokens.weight"))


# InternLM2.


def internlm2_forward(c, p, ids):
    heads, width, eps = c["num_attention_heads"], c["hidden_size"], c.get("rms_norm_eps", 1e-6)
    n, d, kv_heads = len(ids), width // heads, c.get("num_key_value_heads") or heads
    act, tables = activation(c.get("hidden_act", "silu")), rope_tables(c, d, n, p.dtype)
    x = p("model.tok_embeddings.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = rms_norm(x, p(b + "attention_norm.weight"), eps)
        q, k, v = split_by_group(dense(p, b + "attention.wqkv", t), heads, kv_heads)
        x = x + dense(p, b + "attention.wo", attend(rope(q, tables), rope(k, tables), v, d ** -0.5))
        t = rms_norm(x, p(b + "ffn_norm.weight"), eps)
        x = x + gated(p, b + "feed_forward.w1", b + "feed_forward.w3", b + "feed_forward.w2", act, t)
    x = rms_norm(x, p("model.norm.weight"), eps)
    return linear(x, p("output.weight" if not c.get("tie_word_embeddings", False) else "model.tok_embeddings.weight"))


# MiniCPM: a Llama with factors of the embedding, of what a block adds, and of the head's input.


def minicpm_embedding_factor(c):
    return c["scale_emb"]


def minicpm_residual_factor(c):
    return c["scale_depth"] / math.sqrt(c["num_hidden_layers"])


def minicpm_head_factor(c):
    return c["dim_model_base"] / c["hidden_size"]


def minicpm_forward(c, p, ids):
    heads, width, eps = c["num_attention_heads"], c["hidden_size"], c.get("rms_norm_eps", 1e-6)
    n, d, kv_heads = len(ids), width // heads, c.get("num_key_value_heads") or heads
    act, tables, factor = activation(c.get("hidden_act", "silu")), rope_tables(c, d, n, p.dtype), minicpm_residual_factor(c)
    x = p("model.embed_tokens.weight")[ids] * minicpm_embedding_factor(c)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        t = rms_norm(x, p(b + "input_layernorm.weight"), eps)
        q, k, v = (dense(p, f"{b}self_attn.{name}_proj", t).view(n, h, d)
                   for name, h in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        attended = attend(rope(q, tables), rope(k, tables), v, d ** -0.5)
        x = x + factor * dense(p, b + "self_attn.o_proj", attended)
        t = rms_norm(x, p(b + "post_attention_layernorm.weight"), eps)
        x = x + factor * gated(p, b + "mlp.gate_proj", b + "mlp.up_proj", b + "mlp.down_proj", act, t)
    x = rms_norm(x, p("model.norm.weight"), eps) * minicpm_head_factor(c)
    return linear(x, p("model.embed_tokens.weight" if tied(c) else "lm_head.weight"))


# Mini-GPT, of a course's text: GPT-2's blocks with rope, biases in the MLP and the norms only, tied.


def mini_gpt_forward(c, p, ids):
    heads, width, eps = c["n_head"], c["n_embd"], c.get("layer_norm_epsilon", 1e-5)
    n, d, act = len(ids), width // heads, activation(c.get("activation_function", "gelu"))
    tables = rope_tables(c, d, n, p.dtype)
    x = p("transformer.wte.weight")[ids]
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        q, k, v = split_thirds(dense(p, b + "attn.c_attn", layer_norm(p, b + "ln_1", x, eps)), heads)
        x = x + dense(p, b + "attn.c_proj", attend(rope(q, tables), rope(k, tables), v, d ** -0.5))
        x = x + mlp(p, b + "mlp.c_fc", b + "mlp.c_proj", act, layer_norm(p, b + "ln_2", x, eps))
    return linear(layer_norm(p, "transformer.ln_f", x, eps), p("transformer.wte.weight"))


FORWARD = {"opt": opt_forward, "bloom": bloom_forward, "mpt": mpt_forward, "gptj": gptj_forward, "gpt_neo": gptneo_forward,
           "falcon": falcon_forward, "gpt_bigcode": gptbigcode_forward, "starcoder2": starcoder2_forward, "phi": phi_forward,
           "phi3": phi3_forward, "gemma": gemma_forward, "internlm2": internlm2_forward, "minicpm": minicpm_forward,
           "mini-gpt": mini_gpt_forward}


def forward(c, p, ids):
    return FORWARD[c["model_type"]](c, p, torch.as_tensor(ids))
