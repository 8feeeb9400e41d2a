# SPDX-License-Identifier: Apache-2.0
"""Reference models of DeepSeek (MoE, V2, V3), GLM (GLM-4, GLM-4-0414, GLM-4.5), Cohere (Command-R, Command-R7B), Granite (dense, MoE, MoE
with shared experts), OLMo 2, OLMoE, SmolLM3, Llama 4 (text), LFM2, LFM2-MoE and Gemma 4 (text) in plain torch, one function a family, written from the
published code.

    forward(config, params, ids, trace) -> logits [T, vocabulary]

Shapes and options come from the Hugging Face config; keys that the cases leave out have transformers' defaults. Arithmetic is in the
type that Params widens to. check_modern.py replaces single functions of this module to see how far a bug moves the logits.
"""

import math

import torch

import reference
from reference import head_dim, inverse_frequencies, kv_head_of, rms_norm, silu


class Trace(reference.Trace):
    """What one forward pass leaves behind: how near its choices of experts came to a tie, and the experts."""

    def __init__(self):
        super().__init__()
        self.gap, self.experts = math.inf, []

    def chosen(self, scores, k):
        """Indices of the k greatest of each row."""
        ranked = torch.sort(scores, -1, descending=True)
        if k < scores.shape[-1]:
            self.gap = min(self.gap, float((ranked.values[:, k - 1] - ranked.values[:, k]).min()))
        return ranked.indices[:, :k]


# Pieces.


def linear(x, w, b=None):
    return x @ w.T if b is None else x @ w.T + b


def cached(x):
    """Keys and values as the cache gives them back."""
    return x


def layer_norm(x, w, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * w


def rope_tables(n, dim, base, scaling, dtype):
    """cos and sin [T, dim / 2] of positions 0 to n - 1."""
    frequencies, magnitude = inverse_frequencies(dim, base, scaling, dtype)
    angles = torch.arange(n).to(dtype)[:, None] * frequencies[None, :]
    return angles.cos() * magnitude, angles.sin() * magnitude


def rope_half(x, tables):
    """Pairs (i, i + dim/2) of the first dim elements of each head; the others pass. x [T, heads, D]."""
    cos, sin = tables[0][:, None, :], tables[1][:, None, :]
    dim = 2 * cos.shape[-1]
    a, b = x[..., :dim // 2], x[..., dim // 2:dim]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., dim:]], -1)


def rope_pairs(x, tables):
    """Pairs (2i, 2i + 1) of the first dim elements of each head; the others pass. x [T, heads, D]."""
    cos, sin = tables[0][:, None, :], tables[1][:, None, :]
    dim = 2 * cos.shape[-1]
    a, b = x[..., 0:dim:2], x[..., 1:dim:2]
    return torch.cat([torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2), x[..., dim:]], -1)


def causal(n):
    """visible [query, key]."""
    return torch.arange(n)[:, None] >= torch.arange(n)[None, :]


def sliding(n, window):
    """The last `window` keys, the query's own counted."""
    return causal(n) & (torch.arange(n)[:, None] - torch.arange(n)[None, :] < window)


def chunked(n, chunk):
    """Keys of the query's own chunk of `chunk` absolute positions."""
    return causal(n) & (torch.arange(n)[:, None] // chunk == torch.arange(n)[None, :] // chunk)


def attend(q, k, v, scale, visible):
    """q [T, Hq, D], k [T, Hk, D], v [T, Hk, Dv] -> [T, Hq * Dv]."""
    kv_head = kv_head_of(q.shape[1], k.shape[1])
    k, v = cached(k)[:, kv_head], cached(v)[:, kv_head]
    s = (torch.einsum("ihd,jhd->hij", q, k) * scale).masked_fill(~visible, float("-inf"))
    return torch.einsum("hij,jhd->ihd", torch.softmax(s, -1), v).flatten(1)


def swiglu(x, gate, up, down):
    return linear(silu(linear(x, gate)) * linear(x, up), down)


class Layer:
    """Tensors of one layer, by the rest of their name."""

    def __init__(self, p, i):
        self.p, self.prefix = p, f"model.layers.{i}."

    def __call__(self, name):
        return self.p(self.prefix + name)

    def has(self, name):
        return self.p.has(self.prefix + name)

    def linear(self, name, x):
        return linear(x, self(name + ".weight"), self.p.get(f"{self.prefix}{name}.bias"))

    def mlp(self, prefix, x):
        return self.linear(prefix + "down_proj", silu(self.linear(prefix + "gate_proj", x)) * self.linear(prefix + "up_proj", x))

    def experts(self, x, chosen, weights):
        """sum over the chosen experts of weight * SwiGLU. x [T, H], chosen and weights [T, k]."""
        out = torch.zeros_like(x)
        for e in range(int(chosen.max()) + 1):
            token, slot = torch.where(chosen == e)
            if len(token):
                out.index_add_(0, token, self.mlp(f"mlp.experts.{e}.", x[token]) * weights[token, slot, None])
        return out


def qkv(c, layer, x):
    """q [T, Hq, D], k and v [T, Hk, D]."""
    d = head_dim(c)
    return (layer.linear(f"self_attn.{name}_proj", x).view(len(x), -1, d) for name in ("q", "k", "v"))


def head(c, p, x, tied=False):
    tied = c.get("tie_word_embeddings", tied)
    return linear(x, p("model.embed_tokens.weight" if tied else "lm_head.weight"))


def in_experts(c, i):
    """Whether layer i of DeepSeek or GLM-4.5 has experts."""
    return (c.get("n_routed_experts") is not None and i >= c.get("first_k_dense_replace", 0)
            and i % c.get("moe_layer_freq", 1) == 0)


# DeepSeekMoE.


def softmax_routing(c, layer, t, trace):
    """Softmax over all experts, then the k greatest; made to sum to 1 where norm_topk_prob says so."""
    logits = linear(t, layer("mlp.gate.weight"))
    chosen = trace.chosen(logits, c["num_experts_per_tok"])
    weights = torch.softmax(logits, -1).gather(1, chosen)
    if c.get("norm_topk_prob", False):
        weights = weights / weights.sum(-1, keepdim=True)
    trace.experts.append(chosen)
    return chosen, weights


def moe_with_shared_experts(layer, t, chosen, weights):
    """Shared experts are stored as one, as wide as all of them together. Every token takes it, with weight 1."""
    return layer.experts(t, chosen, weights) + layer.mlp("mlp.shared_experts.", t)


def deepseek_v1_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c["rms_norm_eps"]
    tables = rope_tables(n, d, c.get("rope_theta", 10000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps))
        attended = attend(rope_half(q, tables), rope_half(k, tables), v, d ** -0.5, causal(n))
        x = x + layer.linear("self_attn.o_proj", attended)
        t = rms_norm(x, layer("post_attention_layernorm.weight"), eps)
        if in_experts(c, i):
            x = x + moe_with_shared_experts(layer, t, *softmax_routing(c, layer, t, trace))
        else:
            x = x + layer.mlp("mlp.", t)
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps))


# DeepSeek-V2 and V3.

LATENT_EPS = 1e-6  # of the norms inside latent attention, whatever rms_norm_eps is


def yarn_magnitude(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def latent_tables(c, n, dtype):
    """YaRN's magnitude of cos and sin is a quotient of two: 1 where mscale and mscale_all_dim are equal, as in published configs."""
    scaling = c.get("rope_scaling")
    if scaling:
        quotient = yarn_magnitude(scaling["factor"], scaling.get("mscale", 1)) / yarn_magnitude(
            scaling["factor"], scaling.get("mscale_all_dim", 0))
        scaling = dict(scaling, attention_factor=quotient)
    return rope_tables(n, c["qk_rope_head_dim"], c.get("rope_theta", 10000.0), scaling, dtype)


def latent_scale(c):
    """mscale_all_dim scales the scores instead, by the square of its magnitude."""
    scaling = c.get("rope_scaling") or {}
    magnitude = yarn_magnitude(scaling.get("factor", 1), scaling.get("mscale_all_dim", 0))
    return (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) ** -0.5 * magnitude * magnitude


def latent_rope(c, x, tables):
    """Adjacent pairs. rope_interleave false (transformers' V3 only): halves."""
    return rope_pairs(x, tables) if c.get("rope_interleave", True) else rope_half(x, tables)


def latent_attention(c, layer, x, tables):
    n, heads = len(x), c["num_attention_heads"]
    nope, rope, v_dim, rank = (c[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "kv_lora_rank"))
    if c.get("q_lora_rank") is None:
        q = layer.linear("self_attn.q_proj", x)
    else:
        low = rms_norm(layer.linear("self_attn.q_a_proj", x), layer("self_attn.q_a_layernorm.weight"), LATENT_EPS)
        q = layer.linear("self_attn.q_b_proj", low)
    q_nope, q_rope = q.view(n, heads, nope + rope).split([nope, rope], -1)
    latent, k_rope = layer.linear("self_attn.kv_a_proj_with_mqa", x).split([rank, rope], -1)
    latent = cached(rms_norm(latent, layer("self_attn.kv_a_layernorm.weight"), LATENT_EPS))
    kv = linear(latent, layer("self_attn.kv_b_proj.weight")).view(n, heads, nope + v_dim)  # rows: per head key, value
    k_nope, v = kv.split([nope, v_dim], -1)
    q_rope = latent_rope(c, q_rope, tables)
    k_rope = cached(latent_rope(c, k_rope[:, None, :], tables)).expand(n, heads, rope)  # one for all heads
    s = torch.einsum("ihd,jhd->hij", torch.cat([q_nope, q_rope], -1), torch.cat([k_nope, k_rope], -1)) * latent_scale(c)
    s = s.masked_fill(~causal(n), float("-inf"))
    return layer.linear("self_attn.o_proj", torch.einsum("hij,jhd->ihd", torch.softmax(s, -1), v).flatten(1))


def kept_groups(scores, groups, kept, best, trace):
    """-> [T, experts]: whether the expert's group is among the `kept` with the greatest sum of `best` scores."""
    score = scores.view(len(scores), groups, -1).topk(best, -1).values.sum(-1)
    mask = torch.zeros_like(score).scatter_(1, trace.chosen(score, kept), 1.0)
    return mask.bool().repeat_interleave(scores.shape[-1] // groups, -1)


def v2_routing(c, layer, t, trace):
    """A group is judged by its best expert. On logits: the order is that of their softmax, as the published code has it."""
    logits = linear(t, layer("mlp.gate.weight"))
    if c.get("topk_method", "greedy") == "group_limited_greedy":
        keep = kept_groups(logits, c["n_group"], c["topk_group"], 1, trace)
        chosen = trace.chosen(logits.masked_fill(~keep, -1e30), c["num_experts_per_tok"])
    else:
        chosen = trace.chosen(logits, c["num_experts_per_tok"])
    weights = torch.softmax(logits, -1).gather(1, chosen)
    if c["num_experts_per_tok"] > 1 and c.get("norm_topk_prob", False):
        weights = weights / weights.sum(-1, keepdim=True)  # the published code does not scale these
    else:
        weights = weights * c.get("routed_scaling_factor", 1.0)
    trace.experts.append(chosen)
    return chosen, weights


def sigmoid_routing(c, layer, t, trace):
    """V3, GLM-4.5. The bias enters the choice alone. A group is judged by its two best."""
    scores = torch.sigmoid(linear(t, layer("mlp.gate.weight")))
    choice = scores + layer("mlp.gate.e_score_correction_bias")
    if c.get("n_group", 1) > 1:
        choice = choice.masked_fill(~kept_groups(choice, c["n_group"], c["topk_group"], 2, trace), -1e30)
    chosen = trace.chosen(choice, c["num_experts_per_tok"])
    weights = scores.gather(1, chosen)
    if c.get("norm_topk_prob", True):
        weights = weights / weights.sum(-1, keepdim=True)
    trace.experts.append(chosen)
    return chosen, weights * c.get("routed_scaling_factor", 1.0)


def deepseek_latent_forward(routing):
    def forward(c, p, ids, trace):
        n, eps = len(ids), c.get("rms_norm_eps", 1e-6)
        tables = latent_tables(c, n, p.dtype)
        x = p("model.embed_tokens.weight")[ids]
        for i in range(c["num_hidden_layers"]):  # layers past these are for predicting several tokens, and do not run
            layer = Layer(p, i)
            x = x + latent_attention(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps), tables)
            t = rms_norm(x, layer("post_attention_layernorm.weight"), eps)
            if in_experts(c, i):
                x = x + moe_with_shared_experts(layer, t, *globals()[routing](c, layer, t, trace))
            else:
                x = x + layer.mlp("mlp.", t)
        return head(c, p, rms_norm(x, p("model.norm.weight"), eps))
    return forward


# GLM-4 (glm), GLM-4-0414 (glm4), GLM-4.5 (glm4_moe).


def rotated(c):
    """Elements of a head that rope turns, the first ones."""
    return int(head_dim(c) * c.get("partial_rotary_factor", 0.5))


def post_norm(x, w, eps):
    """Norm of a branch's output, before it is added."""
    return rms_norm(x, w, eps)


def fused_mlp(layer, x):
    """Rows of gate_up_proj: all of gate, then all of up."""
    gate, up = layer.linear("mlp.gate_up_proj", x).chunk(2, -1)
    return layer.linear("mlp.down_proj", silu(gate) * up)


def glm_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c["rms_norm_eps"]
    four_norms = c["model_type"] == "glm4"
    tables = rope_tables(n, rotated(c), c.get("rope_theta", 10000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps))
        t = layer.linear("self_attn.o_proj", attend(rope_pairs(q, tables), rope_pairs(k, tables), v, d ** -0.5, causal(n)))
        x = x + (post_norm(t, layer("post_self_attn_layernorm.weight"), eps) if four_norms else t)
        t = fused_mlp(layer, rms_norm(x, layer("post_attention_layernorm.weight"), eps))  # before the MLP, in spite of its name
        x = x + (post_norm(t, layer("post_mlp_layernorm.weight"), eps) if four_norms else t)
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps))


def head_norm(x, w, eps):
    """Norm of q or k per head, one weight for all heads. x [T, heads, D]."""
    return rms_norm(x, w, eps)


def glm4_moe_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c["rms_norm_eps"]
    tables = rope_tables(n, rotated(c), c.get("rope_theta", 10000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps))
        if c.get("use_qk_norm", False):
            q, k = head_norm(q, layer("self_attn.q_norm.weight"), eps), head_norm(k, layer("self_attn.k_norm.weight"), eps)
        attended = attend(rope_half(q, tables), rope_half(k, tables), v, d ** -0.5, causal(n))
        x = x + layer.linear("self_attn.o_proj", attended)
        t = rms_norm(x, layer("post_attention_layernorm.weight"), eps)
        if in_experts(c, i):
            x = x + moe_with_shared_experts(layer, t, *sigmoid_routing(c, layer, t, trace))
        else:
            x = x + layer.mlp("mlp.", t)
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps))


# Cohere: Command-R (cohere), Command-R7B and Command-A (cohere2).


def layer_types(c, pattern):
    """What each layer's attention is. Without layer_types each `pattern`-th sees all of the past, the others slide."""
    return c.get("layer_types") or ["sliding_attention" if (i + 1) % pattern else "full_attention"
                                    for i in range(c["num_hidden_layers"])]


def slides_without_rope(c, slides):
    """Command-R7B: layers that slide have rope, the others no positions at all."""
    return slides


def cohere_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c.get("layer_norm_eps", 1e-5)
    second = c["model_type"] == "cohere2"
    types = layer_types(c, c.get("sliding_window_pattern", 4)) if second else ["full_attention"] * c["num_hidden_layers"]
    tables = rope_tables(n, d, c.get("rope_theta", 10000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer, slides = Layer(p, i), types[i] == "sliding_attention"
        t = layer_norm(x, layer("input_layernorm.weight"), eps)
        q, k, v = qkv(c, layer, t)
        if c.get("use_qk_norm", False) and not second:  # weights [heads, D], one for each head
            q, k = (layer_norm(a, layer(f"self_attn.{name}_norm.weight"), eps) for a, name in ((q, "q"), (k, "k")))
        if not second or slides_without_rope(c, slides):
            q, k = rope_pairs(q, tables), rope_pairs(k, tables)
        attended = attend(q, k, v, d ** -0.5, sliding(n, c["sliding_window"]) if slides else causal(n))
        x = x + layer.linear("self_attn.o_proj", attended) + layer.mlp("mlp.", t)  # both of the one norm
    return head(c, p, layer_norm(x, p("model.norm.weight"), eps), tied=True) * c.get("logit_scale", 0.0625)


# Granite: dense, MoE, MoE with a shared expert.


def granite_experts(c, layer, t, trace):
    """Softmax over the logits of the chosen. input_linear [experts, 2F, H]: rows of gate, then of up."""
    logits = linear(t, layer("block_sparse_moe.router.layer.weight"))
    chosen = trace.chosen(logits, c["num_experts_per_tok"])
    weights = torch.softmax(logits.gather(1, chosen), -1)
    trace.experts.append(chosen)
    into, out_of = layer("block_sparse_moe.input_linear.weight"), layer("block_sparse_moe.output_linear.weight")
    out = torch.zeros_like(t)
    for e in range(c["num_local_experts"]):
        token, slot = torch.where(chosen == e)
        gate, up = linear(t[token], into[e]).chunk(2, -1)
        out.index_add_(0, token, linear(silu(gate) * up, out_of[e]) * weights[token, slot, None])
    return out


def granite_mlp(c, layer, t, trace):
    if c["model_type"] == "granite":
        return layer.mlp("mlp.", t)
    out = granite_experts(c, layer, t, trace)
    if c["model_type"] == "granitemoeshared" and c.get("shared_intermediate_size"):
        gate, up = layer.linear("shared_mlp.input_linear", t).chunk(2, -1)
        out = out + layer.linear("shared_mlp.output_linear", silu(gate) * up)
    return out


def granite_forward(c, p, ids, trace):
    n, d, eps = len(ids), c["hidden_size"] // c["num_attention_heads"], c["rms_norm_eps"]
    residual = c.get("residual_multiplier", 1.0)
    tables = rope_tables(n, d, c.get("rope_theta", 10000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids] * c.get("embedding_multiplier", 1.0)
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps))
        attended = attend(rope_half(q, tables), rope_half(k, tables), v, c.get("attention_multiplier", 1.0), causal(n))
        x = x + layer.linear("self_attn.o_proj", attended) * residual
        x = x + granite_mlp(c, layer, rms_norm(x, layer("post_attention_layernorm.weight"), eps), trace) * residual
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps)) / c.get("logits_scaling", 1.0)


# OLMo 2 and OLMoE.


def whole_norm(x, w, eps):
    """Norm of q or k over all heads at once. x [T, heads, D]."""
    return rms_norm(x.flatten(1), w, eps).view_as(x)


def clip(x, bound):
    return x if bound is None else x.clamp(-bound, bound)


def olmo_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c.get("rms_norm_eps", 1e-5)
    sparse = c["model_type"] == "olmoe"
    tables = rope_tables(n, d, c.get("rope_theta", 10000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps) if sparse else x)
        q, k = whole_norm(q, layer("self_attn.q_norm.weight"), eps), whole_norm(k, layer("self_attn.k_norm.weight"), eps)
        if sparse:
            q, k, v = (clip(a, c.get("clip_qkv")) for a in (q, k, v))
        attended = attend(rope_half(q, tables), rope_half(k, tables), v, d ** -0.5, causal(n))
        t = layer.linear("self_attn.o_proj", attended)
        if sparse:
            x = x + t
            t = rms_norm(x, layer("post_attention_layernorm.weight"), eps)
            x = x + layer.experts(t, *softmax_routing(c, layer, t, trace))
        else:  # norms after the branches only
            x = x + post_norm(t, layer("post_attention_layernorm.weight"), eps)
            x = x + post_norm(layer.mlp("mlp.", x), layer("post_feedforward_layernorm.weight"), eps)
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps))


# SmolLM3.


def uses_rope(c):
    """Per layer: 1 has rope. Without no_rope_layers (or with an empty list) each no_rope_layer_interval-th has none."""
    return c.get("no_rope_layers") or [int((i + 1) % c.get("no_rope_layer_interval", 4) != 0)
                                       for i in range(c["num_hidden_layers"])]


def smollm3_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c.get("rms_norm_eps", 1e-6)
    with_rope, window = uses_rope(c), c.get("sliding_window") if c.get("use_sliding_window", False) else None
    types = c.get("layer_types") or ["sliding_attention" if window and not r else "full_attention" for r in with_rope]
    tables = rope_tables(n, d, c.get("rope_theta", 2000000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps))
        if with_rope[i]:
            q, k = rope_half(q, tables), rope_half(k, tables)
        visible = sliding(n, window) if window and types[i] == "sliding_attention" else causal(n)
        x = x + layer.linear("self_attn.o_proj", attend(q, k, v, d ** -0.5, visible))
        x = x + layer.mlp("mlp.", rms_norm(x, layer("post_attention_layernorm.weight"), eps))
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps), tied=True)


# Llama 4 (text).


def unweighted_norm(x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def temperature(c, n, dtype):
    """Factor of the queries in layers without rope, [T, 1, 1]. Position 0 counts as 1."""
    steps = torch.floor((torch.arange(n).to(dtype) + 1.0) / c.get("floor_scale", 8192))
    return (torch.log1p(steps) * c.get("attn_scale", 0.1) + 1.0)[:, None, None]


def llama4_experts(c, layer, t, trace):
    """The sigmoid of the chosen logit scales the expert's input. Experts are stored [experts, in, out]: no transpose."""
    logits = linear(t, layer("feed_forward.router.weight"))
    chosen = trace.chosen(logits, c.get("num_experts_per_tok", 1))
    scores = torch.sigmoid(logits.gather(1, chosen))
    trace.experts.append(chosen)
    gate_up, down = layer("feed_forward.experts.gate_up_proj"), layer("feed_forward.experts.down_proj")
    out = layer.mlp("feed_forward.shared_expert.", t)
    for e in range(c["num_local_experts"]):
        token, slot = torch.where(chosen == e)
        gate, up = linear(t[token] * scores[token, slot, None], gate_up[e].T).chunk(2, -1)
        out = out.index_add(0, token, linear(silu(gate) * up, down[e].T))
    return out


def llama4_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c.get("rms_norm_eps", 1e-5)
    with_rope, step = uses_rope(c), c.get("interleave_moe_layer_step", 1)
    sparse = c["moe_layers"] if c.get("moe_layers") is not None else range(step - 1, c["num_hidden_layers"], step)
    types = c.get("layer_types") or ["chunked_attention" if r else "full_attention" for r in with_rope]
    tables = rope_tables(n, d, c.get("rope_theta", 500000.0), c.get("rope_scaling"), p.dtype)
    x = p("model.embed_tokens.weight")[ids]
    for i in range(c["num_hidden_layers"]):
        layer = Layer(p, i)
        q, k, v = qkv(c, layer, rms_norm(x, layer("input_layernorm.weight"), eps))
        if with_rope[i]:
            q, k = rope_pairs(q, tables), rope_pairs(k, tables)
            if c.get("use_qk_norm", True):  # after rope
                q, k = unweighted_norm(q, eps), unweighted_norm(k, eps)
        elif c.get("attn_temperature_tuning", True):  # published configs have 4 for true
            q = q * temperature(c, n, p.dtype)
        visible = chunked(n, c.get("attention_chunk_size", 8192)) if types[i] == "chunked_attention" else causal(n)
        x = x + layer.linear("self_attn.o_proj", attend(q, k, v, d ** -0.5, visible))
        t = rms_norm(x, layer("post_attention_layernorm.weight"), eps)
        x = x + (llama4_experts(c, layer, t, trace) if i in sparse else layer.mlp("feed_forward.", t))
    return head(c, p, rms_norm(x, p("model.norm.weight"), eps))


# LFM2 and LFM2-MoE: transformers' modeling_lfm2.py and modeling_lfm2_moe.py.


def lfm2_width(c):
    """The feed-forward's width of LFM2: two thirds of the config's, times a multiplier, rounded up to a multiple."""
    width = c["intermediate_size"]
    if not c.get("block_auto_adjust_ff_dim", True):
        return width
    width = int(2 * width / 3)
    if c.get("block_ffn_dim_multiplier") is not None:
        width = int(c["block_ffn_dim_multiplier"] * width)
    step = c.get("block_multiple_of", 256)
    return step * ((width + step - 1) // step)


def short_conv(layer, x):
    """C conv(B x), the convolution over the last positions of each channel; zeros before the first."""
    b, gate, x = layer.linear("conv.in_proj", x).chunk(3, -1)
    taps = layer("conv.conv.weight")[:, 0]  # [H, taps], the oldest position's first
    n, count = len(x), taps.shape[-1]
    rows = torch.cat([torch.zeros_like(x)[:1].expand(count - 1, -1), b * x])
    mixed = sum(rows[k:k + n] * taps[:, k] for k in range(count))
    return layer.linear("conv.out_proj", gate * mixed)


def lfm2_mlp(layer, prefix, x):
    return layer.linear(prefix + "w2", silu(layer.linear(prefix + "w1", x)) * layer.linear(prefix + "w3", x))


def lfm2_experts(c, layer, t, trace):
    """The bias enters the choice alone; 1e-6 joins the sum that the weights are divided by."""
    scores = torch.sigmoid(linear(t, layer("feed_forward.gate.weight")))
    choice = scores + layer("feed_forward.expert_bias") if c.get("use_expert_bias", True) else scores
    chosen = trace.chosen(choice, c["num_experts_per_tok"])
    weights = scores.gather(1, chosen)
    if c.get("norm_topk_prob", True):
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-6)
    weights = weights * c.get("routed_scaling_factor", 1.0)
    trace.experts.append(chosen)
    out = torch.zeros_like(t)
    for e in range(c["num_experts"]):
        token, slot = torch.where(chosen == e)
        out.index_add_(0, token, lfm2_mlp(layer, f"feed_forward.experts.{e}.", t[token]) * weights[token, slot, None])
    return out


def lfm2_attends(c):
    """Whether each layer attends; the others convolve."""
    if c.get("layer_types"):
        return [t == "full_attention" for t in c["layer_types"]]
    return [i in c["full_attn_idxs"] for i in range(c["num_hidden_layers"])]


def lfm2_forward(c, p, ids, trace):
    n, d, eps = len(ids), head_dim(c), c["norm_eps"]
    tables = rope_tables(n, d, c.get("rope_theta", 1000000.0), None, p.dtype)
    dense = c.get("num_dense_layers", c["num_hidden_layers"])
    x = p("model.embed_tokens.weight")[ids]
    for i, attends in enumerate(lfm2_attends(c)):
        layer = Layer(p, i)
        t = rms_norm(x, layer("operator_norm.weight"), eps)
        if attends:
            q, k, v = qkv(c, layer, t)
            q, k = head_norm(q, layer("self_attn.q_layernorm.weight"), eps), head_norm(k, layer("self_attn.k_layernorm.weight"), eps)
            attended = attend(rope_half(q, tables), rope_half(k, tables), v, d ** -0.5, causal(n))
            x = x + layer.linear("self_attn.out_proj", attended)
        else:
            x = x + short_conv(layer, t)
        t = rms_norm(x, layer("ffn_norm.weight"), eps)
        x = x + (lfm2_mlp(layer, "feed_forward.", t) if i < dense else lfm2_experts(c, layer, t, trace))
    return head(c, p, rms_norm(x, p("model.embedding_norm.weight"), eps), True)


# Gemma 4 (text): transformers' modeling_gemma4.py.


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def geglu(layer, prefix, x):
    return layer.linear(prefix + "down_proj", gelu(layer.linear(prefix + "gate_proj", x)) * layer.linear(prefix + "up_proj", x))


def gemma4_types(c):
    types = list(layer_types(c, 6))
    types[-1] = "full_attention"  # whatever it says
    return types


def gemma4_sizes(c, i):
    """Head size, KV heads and width of the MLP of layer i; whether its values are its keys; whose keys and values it reads."""
    types, own = gemma4_types(c), c["num_hidden_layers"] - c.get("num_kv_shared_layers", 0)
    full = types[i] == "full_attention"
    k_is_v = full and c.get("attention_k_eq_v", False)
    kv = c["num_global_key_value_heads"] if k_is_v and c.get("num_global_key_value_heads") else c["num_key_value_heads"]
    source = i if i < own else max(j for j in range(own) if types[j] == types[i])
    width = c["intermediate_size"] * (2 if source != i and c.get("use_double_wide_mlp") else 1)
    return c["global_head_dim"] if full else c["head_dim"], kv, width, k_is_v, source


def proportional_tables(c, n, dtype):
    """The first part of the pairs turns, with exponents over the whole head; the others do not."""
    rope, d = c["rope_parameters"]["full_attention"], c["global_head_dim"]
    turned = int(rope["partial_rotary_factor"] * d // 2)
    frequencies = rope["rope_theta"] ** -(torch.arange(0, 2 * turned, 2).to(dtype) / d)
    frequencies = torch.cat([frequencies, torch.zeros(d // 2 - turned, dtype=dtype)])
    angles = torch.arange(n).to(dtype)[:, None] * frequencies[None, :]
    return angles.cos(), angles.sin()


def gemma4_experts(c, layer, x, t, trace):
    """The router reads the residual x, the experts t. Softmax over all, the k greatest made to sum to 1, then each expert's scale."""
    logits = linear(unweighted_norm(x, c["rms_norm_eps"]) * layer("router.scale") * c["hidden_size"] ** -0.5, layer("router.proj.weight"))
    chosen = trace.chosen(logits, c["top_k_experts"])
    weights = torch.softmax(logits, -1).gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True) * layer("router.per_expert_scale")[chosen]
    trace.experts.append(chosen)
    into, out_of = layer("experts.gate_up_proj"), layer("experts.down_proj")
    out = torch.zeros_like(t)
    for e in range(c["num_experts"]):
        token, slot = torch.where(chosen == e)
        gate, up = linear(t[token], into[e]).chunk(2, -1)
        out.index_add_(0, token, linear(gelu(gate) * up, out_of[e]) * weights[token, slot, None])
    return out


def gemma4_layer_inputs(c, p, ids, x):
    """[T, layers, P]: a row of the second table, and a projection of the scaled embedding, halved in power."""
    count, size, width = c["num_hidden_layers"], c["hidden_size_per_layer_input"], c["hidden_size"]
    rows = p("model.embed_tokens_per_layer.weight")[ids].view(len(ids), count, size) * size ** 0.5
    given = (linear(x, p("model.per_layer_model_projection.weight")) * width ** -0.5).view(len(ids), count, size)
    return (rms_norm(given, p("model.per_layer_projection_norm.weight"), c["rms_norm_eps"]) + rows) * 2 ** -0.5


def gemma4_forward(c, p, ids, trace):
    n, eps, types = len(ids), c["rms_norm_eps"], gemma4_types(c)
    full = proportional_tables(c, n, p.dtype)
    local = rope_tables(n, c["head_dim"], c["rope_parameters"]["sliding_attention"]["rope_theta"], None, p.dtype)
    x = p("model.embed_tokens.weight")[ids] * c["hidden_size"] ** 0.5
    inputs = gemma4_layer_inputs(c, p, ids, x) if c["hidden_size_per_layer_input"] else None
    kept = {}
    for i in range(c["num_hidden_layers"]):
        layer, slides = Layer(p, i), types[i] == "sliding_attention"
        d, kv_heads, _, k_is_v, source = gemma4_sizes(c, i)
        tables = local if slides else full
        t = rms_norm(x, layer("input_layernorm.weight"), eps)
        q = layer.linear("self_attn.q_proj", t).view(n, -1, d)
        q = rope_half(head_norm(q, layer("self_attn.q_norm.weight"), eps), tables)
        if source == i:
            k = layer.linear("self_attn.k_proj", t).view(n, kv_heads, d)
            v = k if k_is_v else layer.linear("self_attn.v_proj", t).view(n, kv_heads, d)
            k = rope_half(head_norm(k, layer("self_attn.k_norm.weight"), eps), tables)
            kept[i] = k, unweighted_norm(v, eps)
        visible = sliding(n, c["sliding_window"]) if slides else causal(n)
        t = layer.linear("self_attn.o_proj", attend(q, *kept[source], 1.0, visible))
        x = x + post_norm(t, layer("post_attention_layernorm.weight"), eps)
        t = geglu(layer, "mlp.", rms_norm(x, layer("pre_feedforward_layernorm.weight"), eps))
        if c.get("enable_moe_block"):
            t = post_norm(t, layer("post_feedforward_layernorm_1.weight"), eps)
            routed = gemma4_experts(c, layer, x, rms_norm(x, layer("pre_feedforward_layernorm_2.weight"), eps), trace)
            t = t + post_norm(routed, layer("post_feedforward_layernorm_2.weight"), eps)
        x = x + post_norm(t, layer("post_feedforward_layernorm.weight"), eps)
        if inputs is not None:
            t = gelu(layer.linear("per_layer_input_gate", x)) * inputs[:, i]
            x = x + post_norm(layer.linear("per_layer_projection", t), layer("post_per_layer_input_norm.weight"), eps)
        x = x * layer("layer_scalar")
    logits = head(c, p, rms_norm(x, p("model.norm.weight"), eps), True)
    cap = c.get("final_logit_softcapping")
    return torch.tanh(logits / cap) * cap if cap else logits


FORWARD = {"deepseek": deepseek_v1_forward, "deepseek_v2": deepseek_latent_forward("v2_routing"),
           "deepseek_v3": deepseek_latent_forward("sigmoid_routing"), "glm": glm_forward, "glm4": glm_forward,
           "glm4_moe": glm4_moe_forward, "cohere": cohere_forward, "cohere2": cohere_forward, "granite": granite_forward,
           "granitemoe": granite_forward, "granitemoeshared": granite_forward, "olmo2": olmo_forward, "olmoe": olmo_forward,
           "smollm3": smollm3_forward, "llama4_text": llama4_forward, "lfm2": lfm2_forward, "lfm2_moe": lfm2_forward,
           "gemma4_text": gemma4_forward}


def forward(c, p, ids, trace=None):
    return FORWARD[c["model_type"]](c, p, torch.as_tensor(ids), trace if trace is not None else Trace())
