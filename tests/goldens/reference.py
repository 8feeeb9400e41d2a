# SPDX-License-Identifier: Apache-2.0
"""Reference models of the golden cases in plain torch, one function a family, written from the published modelling code.

    forward(config, params, ids, trace) -> logits [T, vocabulary]

Shapes and options come from the Hugging Face config. Arithmetic is in the type that Params widens to. check_goldens.py replaces
single functions of this module to see how far a bug moves the logits; that is why some are one line long.
"""

import math

import torch

FP4 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float32)


class Params:
    """Stored tensors by name, widened to the type of the computation."""

    def __init__(self, tensors, dtype):
        self.tensors, self.dtype = tensors, dtype

    def __call__(self, name):
        return self.tensors[name].to(self.dtype)

    def get(self, name):
        return self(name) if name in self.tensors else None

    def has(self, name):
        return name in self.tensors


class Trace:
    """What one forward pass leaves behind: see README.md of this folder."""

    def __init__(self):
        self.hidden, self.mid, self.router, self.final, self.notes = [], [], {}, None, {}

    def note_max(self, key, value):
        self.notes[key] = max(self.notes.get(key, -1e30), float(value))

    def note_share(self, key, hits):
        old = self.notes.get(key, (0, 0))
        self.notes[key] = (old[0] + int(hits.sum()), old[1] + hits.numel())


# Pieces.


def linear(x, w, b=None):
    y = x @ w.T
    return y if b is None else y + b


def rms_norm(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def layer_norm(x, w, b, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * w + b


def silu(x):
    return x * torch.sigmoid(x)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu_erf(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def inverse_frequencies(dim, base, scaling, dtype, max_positions=None):
    """-> (frequencies [dim / 2], factor of cos and sin)."""
    f = base ** (torch.arange(0, dim, 2, dtype=torch.int64).to(dtype) / dim)
    kind = scaling.get("rope_type", scaling.get("type")) if scaling else "default"
    if kind == "default":
        return 1.0 / f, 1.0
    factor = scaling["factor"]
    if kind == "linear":
        return 1.0 / f / factor, 1.0
    context = scaling.get("original_max_position_embeddings") or max_positions
    if kind == "llama3":
        low, high, out = scaling["low_freq_factor"], scaling["high_freq_factor"], []
        for v in (1.0 / f).tolist():
            wavelength = 2 * math.pi / v
            if wavelength < context / high:
                out.append(v)
            elif wavelength > context / low:
                out.append(v / factor)
            else:
                s = (context / wavelength - low) / (high - low)
                out.append((1 - s) * v / factor + s * v)
        return torch.tensor(out, dtype=dtype), 1.0
    if kind == "yarn":
        def bound(rotations):
            return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = bound(scaling.get("beta_fast", 32)), bound(scaling.get("beta_slow", 1))
        if scaling.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dim - 1)
        if low == high:
            high += 0.001
        ramp = ((torch.arange(dim // 2, dtype=dtype) - low) / (high - low)).clamp(0, 1)  # 0: keep, 1: interpolate
        magnitude = scaling.get("attention_factor")
        if magnitude is None:
            magnitude = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
        return (1.0 / f) * (1 - ramp) + (1.0 / (factor * f)) * ramp, magnitude
    raise ValueError(kind)


def rope_tables(n, dim, base, scaling, dtype, max_positions=None):
    frequencies, magnitude = inverse_frequencies(dim, base, scaling, dtype, max_positions)
    angles = torch.arange(n).to(dtype)[:, None] * frequencies[None, :]
    return angles.cos() * magnitude, angles.sin() * magnitude  # [T, dim / 2] each


def rope(x, tables):
    """Pairs (i, i + dim/2) of the first dim elements of each head; the others pass. x [T, heads, D]."""
    cos, sin = tables[0][:, None, :], tables[1][:, None, :]
    dim = 2 * cos.shape[-1]
    a, b = x[..., :dim // 2], x[..., dim // 2:dim]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, x[..., dim:]], -1)


def kv_head_of(heads, kv_heads):
    return torch.arange(heads) // (heads // kv_heads)


def attend(q, k, v, scale, window=None, softcap=None, sinks=None, trace=None):
    """q [T, Hq, D], k and v [T, Hk, D] -> [T, Hq * D]. Query i sees key j where 0 <= i - j (< window)."""
    n, heads, _ = q.shape
    kv_head = kv_head_of(heads, k.shape[1])
    k, v = k[:, kv_head], v[:, kv_head]
    s = torch.einsum("ihd,jhd->hij", q, k) * scale
    if trace is not None:
        trace.note_max("max_abs_attn_score", s.abs().max())
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    distance = torch.arange(n)[:, None] - torch.arange(n)[None, :]
    visible = distance >= 0
    if window is not None:
        visible &= distance < window
    s = s.masked_fill(~visible, float("-inf"))
    if sinks is not None:
        s = torch.cat([s, sinks[:, None, None].expand(heads, n, 1)], -1)
    p = torch.exp(s - s.amax(-1, keepdim=True))
    p = p / p.sum(-1, keepdim=True)
    if sinks is not None:
        if trace is not None:
            trace.note_max("max_sink_prob", p[..., -1].max())
        p = p[..., :-1]  # a sink takes its share of probability and gives no value
    return torch.einsum("hij,jhd->ihd", p, v).flatten(1)


def swiglu(x, gate, up, down):
    return linear(silu(linear(x, gate)) * linear(x, up), down)


def head_dim(c):
    return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]


# GPT-2.


def gpt2_forward(c, p, ids, trace):
    prefix = "transformer." if p.has("transformer.wte.weight") else ""
    width, heads, eps = c["n_embd"], c["n_head"], c["layer_norm_epsilon"]
    n, d = len(ids), c["n_embd"] // c["n_head"]
    x = p(prefix + "wte.weight")[ids] + p(prefix + "wpe.weight")[:n]
    trace.hidden.append(x)
    for i in range(c["n_layer"]):
        b = f"{prefix}h.{i}."

        def conv(name, t):  # Conv1D stores [in, out]
            return t @ p(b + name + ".weight") + p(b + name + ".bias")

        t = layer_norm(x, p(b + "ln_1.weight"), p(b + "ln_1.bias"), eps)
        q, k, v = (u.view(n, heads, d) for u in conv("attn.c_attn", t).split(width, -1))
        x = x + conv("attn.c_proj", attend(q, k, v, d ** -0.5, trace=trace))
        trace.mid.append(x)
        t = layer_norm(x, p(b + "ln_2.weight"), p(b + "ln_2.bias"), eps)
        x = x + conv("mlp.c_proj", gelu_tanh(conv("mlp.c_fc", t)))
        trace.hidden.append(x)
    trace.final = layer_norm(x, p(prefix + "ln_f.weight"), p(prefix + "ln_f.bias"), eps)
    return trace.final @ p(prefix + "wte.weight").T


# Llama, Mistral, Qwen2-MoE. No case is Qwen2, Qwen3-MoE or OLMoE; check_goldens.py runs checkpoints of them.


def is_sparse(c, i):
    """Whether layer i has experts."""
    if not c.get("num_experts"):
        return False
    return i not in c.get("mlp_only_layers", []) and (i + 1) % c.get("decoder_sparse_step", 1) == 0


def qk_norm(x, w, eps):
    """Per head (Qwen3-MoE), or over all heads at once (OLMoE), as the weight's width tells. x [T, heads, D]."""
    if w is None:
        return x
    return rms_norm(x, w, eps) if len(w) == x.shape[-1] else rms_norm(x.flatten(1), w, eps).view_as(x)


def shared_expert_gate(t, w):
    return torch.sigmoid(linear(t, w))  # [T, 1]


def experts_of(c, p, prefix, t, i, trace):
    """Softmax over all experts, then the k greatest, their weights made to sum to 1 only where norm_topk_prob says so."""
    logits = linear(t, p(prefix + "gate.weight"))
    weights, chosen = torch.topk(torch.softmax(logits, -1), c["num_experts_per_tok"], -1)
    if c["norm_topk_prob"]:
        weights = weights / weights.sum(-1, keepdim=True)
    trace.router[i] = (logits, chosen, weights)

    def projections(expert):
        return (p(f"{prefix}{expert}.{name}_proj.weight") for name in ("gate", "up", "down"))

    out = torch.zeros_like(t)
    for e in range(c["num_experts"]):
        token, slot = torch.where(chosen == e)
        if len(token):
            out.index_add_(0, token, swiglu(t[token], *projections(f"experts.{e}")) * weights[token, slot, None])
    if p.has(prefix + "shared_expert_gate.weight"):
        gate = shared_expert_gate(t, p(prefix + "shared_expert_gate.weight"))
        out = out + gate * swiglu(t, *projections("shared_expert"))
    return out


def llama_forward(c, p, ids, trace):
    d, heads, kv_heads, eps = head_dim(c), c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    n = len(ids)
    window = c.get("sliding_window") if c.get("use_sliding_window", True) else None
    tables = rope_tables(n, d, c["rope_theta"], c.get("rope_scaling"), p.dtype, c["max_position_embeddings"])
    x = p("model.embed_tokens.weight")[ids]
    trace.hidden.append(x)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."

        def project(name, t):
            return linear(t, p(f"{b}{name}.weight"), p.get(f"{b}{name}.bias"))

        t = rms_norm(x, p(b + "input_layernorm.weight"), eps)
        q = project("self_attn.q_proj", t).view(n, heads, d)
        k = project("self_attn.k_proj", t).view(n, kv_heads, d)
        v = project("self_attn.v_proj", t).view(n, kv_heads, d)
        q = rope(qk_norm(q, p.get(b + "self_attn.q_norm.weight"), eps), tables)
        k = rope(qk_norm(k, p.get(b + "self_attn.k_norm.weight"), eps), tables)
        x = x + project("self_attn.o_proj", attend(q, k, v, d ** -0.5, window, trace=trace))
        trace.mid.append(x)
        t = rms_norm(x, p(b + "post_attention_layernorm.weight"), eps)
        if is_sparse(c, i):
            x = x + experts_of(c, p, b + "mlp.", t, i, trace)
        else:
            x = x + swiglu(t, *(p(f"{b}mlp.{name}_proj.weight") for name in ("gate", "up", "down")))
        trace.hidden.append(x)
    trace.final = rms_norm(x, p("model.norm.weight"), eps)
    return linear(trace.final, p("model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"))


# GPT-NeoX.

NEOX_ACTIVATIONS = {"gelu": "gelu_erf", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def split_qkv(fused, heads, d):
    """[T, heads * 3 * D]: per head q, k, v."""
    return fused.view(-1, heads, 3, d).unbind(2)


def gptneox_forward(c, p, ids, trace):
    heads, eps, n = c["num_attention_heads"], c["layer_norm_eps"], len(ids)
    d = c["hidden_size"] // heads
    activation = globals()[NEOX_ACTIVATIONS[c["hidden_act"]]]
    tables = rope_tables(n, int(d * c["rotary_pct"]), c["rotary_emb_base"], c.get("rope_scaling"), p.dtype)

    def module(name):
        return p(name + ".weight"), p.get(name + ".bias")

    x = p("gpt_neox.embed_in.weight")[ids]
    trace.hidden.append(x)
    for i in range(c["num_hidden_layers"]):
        b = f"gpt_neox.layers.{i}."
        t = layer_norm(x, *module(b + "input_layernorm"), eps)
        q, k, v = split_qkv(linear(t, *module(b + "attention.query_key_value")), heads, d)
        attended = attend(rope(q, tables), rope(k, tables), v, d ** -0.5, trace=trace)
        mid = x + linear(attended, *module(b + "attention.dense"))
        trace.mid.append(mid)
        t = layer_norm(x if c["use_parallel_residual"] else mid, *module(b + "post_attention_layernorm"), eps)
        x = mid + linear(activation(linear(t, *module(b + "mlp.dense_h_to_4h"))), *module(b + "mlp.dense_4h_to_h"))
        trace.hidden.append(x)
    trace.final = layer_norm(x, *module("gpt_neox.final_layer_norm"), eps)
    return linear(trace.final, p("embed_out.weight"))


# Gemma 3 (text). No case is Gemma 2; check_goldens.py runs a checkpoint of it.


def gemma_slides(c, i):
    if c.get("layer_types"):
        return c["layer_types"][i] == "sliding_attention"
    if c["model_type"] == "gemma2":
        return i % 2 == 0
    return (i + 1) % c["sliding_window_pattern"] != 0


def gemma_tables(c, slides, n, dtype):
    """Rope of a layer: local base without scaling where it slides, global base with scaling elsewhere."""
    if slides and c["model_type"] == "gemma3_text":
        return rope_tables(n, head_dim(c), c["rope_local_base_freq"], None, dtype)
    return rope_tables(n, head_dim(c), c["rope_theta"], c.get("rope_scaling"), dtype, c["max_position_embeddings"])


def gemma_norm(x, w, eps):
    return rms_norm(x, 1.0 + w, eps)


def gemma_post_norm(x, w, eps):
    return gemma_norm(x, w, eps)


def gemma_qk_norm(x, w, eps):
    return x if w is None else gemma_norm(x, w, eps)


def gemma_embedding_scale(c, dtype):
    return torch.tensor(c["hidden_size"] ** 0.5, dtype=dtype)


def gemma_forward(c, p, ids, trace):
    d, heads, kv_heads, eps = head_dim(c), c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    n = len(ids)
    x = p("model.embed_tokens.weight")[ids] * gemma_embedding_scale(c, p.dtype)
    trace.hidden.append(x)
    for i in range(c["num_hidden_layers"]):
        b, slides = f"model.layers.{i}.", gemma_slides(c, i)

        def project(name, t):
            return linear(t, p(f"{b}{name}.weight"))

        tables = gemma_tables(c, slides, n, p.dtype)
        t = gemma_norm(x, p(b + "input_layernorm.weight"), eps)
        q = project("self_attn.q_proj", t).view(n, heads, d)
        k = project("self_attn.k_proj", t).view(n, kv_heads, d)
        v = project("self_attn.v_proj", t).view(n, kv_heads, d)
        q = rope(gemma_qk_norm(q, p.get(b + "self_attn.q_norm.weight"), eps), tables)
        k = rope(gemma_qk_norm(k, p.get(b + "self_attn.k_norm.weight"), eps), tables)
        attended = attend(q, k, v, c["query_pre_attn_scalar"] ** -0.5, c["sliding_window"] if slides else None,
                          c.get("attn_logit_softcapping"), trace=trace)
        t = project("self_attn.o_proj", attended)
        x = x + gemma_post_norm(t, p(b + "post_attention_layernorm.weight"), eps)
        trace.mid.append(x)
        t = gemma_norm(x, p(b + "pre_feedforward_layernorm.weight"), eps)
        t = project("mlp.down_proj", gelu_tanh(project("mlp.gate_proj", t)) * project("mlp.up_proj", t))
        x = x + gemma_post_norm(t, p(b + "post_feedforward_layernorm.weight"), eps)
        trace.hidden.append(x)
    trace.final = gemma_norm(x, p("model.norm.weight"), eps)
    logits = linear(trace.final, p("lm_head.weight" if c.get("tie_word_embeddings") is False else "model.embed_tokens.weight"))
    cap = c.get("final_logit_softcapping")
    return logits if cap is None else cap * torch.tanh(logits / cap)


# gpt-oss. Its committed goldens come from the published torch implementation widened to f32; this function agrees with it
# to 3e-5 and to the same experts.


def mxfp4_dequantize(blocks, scales):
    """u8 [..., K/32, 16] and [..., K/32] -> f32 [..., K]. A byte holds elements 2j (low half) and 2j + 1."""
    values = torch.stack([FP4[(blocks & 15).long()], FP4[(blocks >> 4).long()]], -1).flatten(-2)
    return (values * torch.pow(2.0, scales.float() - 127)[..., None]).flatten(-2)


def gptoss_forward(c, p, ids, trace):
    d, heads, kv_heads, eps = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    n, limit = len(ids), c["swiglu_limit"]
    tables = rope_tables(n, d, c["rope_theta"], c["rope_scaling"], p.dtype, c["max_position_embeddings"])
    x = p("model.embed_tokens.weight")[ids]
    trace.hidden.append(x)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."

        def project(name, t):
            return linear(t, p(f"{b}{name}.weight"), p(f"{b}{name}.bias"))

        def dequantized(name):
            return mxfp4_dequantize(p.tensors[b + name + "_blocks"], p.tensors[b + name + "_scales"]).to(p.dtype)

        t = rms_norm(x, p(b + "input_layernorm.weight"), eps)
        q = rope(project("self_attn.q_proj", t).view(n, heads, d), tables)
        k = rope(project("self_attn.k_proj", t).view(n, kv_heads, d), tables)
        v = project("self_attn.v_proj", t).view(n, kv_heads, d)
        window = c["sliding_window"] if c["layer_types"][i] == "sliding_attention" else None
        attended = attend(q, k, v, d ** -0.5, window, sinks=p(b + "self_attn.sinks"), trace=trace)
        x = x + project("self_attn.o_proj", attended)
        trace.mid.append(x)
        t = rms_norm(x, p(b + "post_attention_layernorm.weight"), eps)
        logits = project("mlp.router", t)
        top, chosen = torch.topk(logits, c["num_experts_per_tok"], -1)
        weights = torch.softmax(top, -1)
        trace.router[i] = (logits, chosen, weights)
        gate_up, down = dequantized("mlp.experts.gate_up_proj"), dequantized("mlp.experts.down_proj")
        gate_up_bias, down_bias = p(b + "mlp.experts.gate_up_proj_bias"), p(b + "mlp.experts.down_proj_bias")
        out = torch.zeros_like(x)
        for e in range(c["num_local_experts"]):
            token, slot = torch.where(chosen == e)
            if not len(token):
                continue
            h = linear(t[token], gate_up[e], gate_up_bias[e])
            gate, up = h[..., 0::2], h[..., 1::2]
            trace.note_share("gate_clamped", gate > limit)
            trace.note_share("up_clamped", up.abs() > limit)
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            h = gate * torch.sigmoid(1.702 * gate) * (up + 1)
            out.index_add_(0, token, linear(h, down[e], down_bias[e]) * weights[token, slot, None])
        x = x + out
        trace.hidden.append(x)
    trace.final = rms_norm(x, p("model.norm.weight"), eps)
    return linear(trace.final, p("lm_head.weight"))


FORWARD = {"gpt2": gpt2_forward, "llama": llama_forward, "mistral": llama_forward, "qwen2": llama_forward,
           "qwen2_moe": llama_forward, "qwen3_moe": llama_forward, "olmoe": llama_forward, "gpt_neox": gptneox_forward,
           "gemma2": gemma_forward, "gemma3_text": gemma_forward, "gpt_oss": gptoss_forward}


def forward(c, p, ids, trace=None):
    return FORWARD[c["model_type"]](c, p, torch.as_tensor(ids), trace if trace is not None else Trace())
