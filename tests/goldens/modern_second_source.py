# SPDX-License-Identifier: Apache-2.0
"""Second source of make_modern.py's cases: the same models from their GGUF form, in numpy, float64, token by token with a cache.

Written from llama.cpp's graphs (src/models/{deepseek,deepseek2,chatglm,glm4,glm4-moe,command-r,cohere2-iswa,granite,olmo2,olmoe,smollm3,
llama4,lfm2,gemma4}.cpp, build_moe_ffn, ggml's rope) and its converter, not from modern_reference.py, and sharing no code with it. Latent attention
runs in its absorbed form where the file has attn_k_b. Meant differences from llama.cpp: with the softmax a group of experts is judged by
its best expert (DeepSeek-V2's published code), not by its two best.
"""

import math

import numpy as np

from second_source import Layers, gelu_tanh, neox_rope, silu


class Model(Layers):
    """Keys, tensors and cache, and what the config says and GGUF has no key for (`unsaid`)."""

    def __init__(self, keys, tensors, unsaid):
        super().__init__(keys, tensors)
        self.unsaid = unsaid
        self.heads, self.kv_heads = self.key("attention.head_count"), self.key("attention.head_count_kv")
        self.count -= self.key("nextn_predict_layers", 0)
        width = self.key("embedding_length")
        self.d = self.key("attention.key_length", width // self.heads)
        self.n_rot = self.key("rope.dimension_count", self.d)
        self.base = self.key("rope.freq_base", 10000.0)

    def has(self, layer, name):
        return f"blk.{layer}.{name}" in self.tensors

    def qkv(self, layer, x):
        return (self.linear(layer, "attn_" + name, x).reshape(-1, self.d) for name in "qkv")

    def rms_of(self, layer, name, x):
        return self.rms(x, f"blk.{layer}.{name}.weight")

    def plain_rms(self, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.key("attention.layer_norm_rms_epsilon"))

    def ln(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.key("attention.layer_norm_epsilon")) * self.tensors[name]

    def logits(self, x):
        return self.tensors.get("output.weight", self.tensors["token_embd.weight"]) @ x

    def ffn(self, layer, x, suffix=""):
        gate, up = (self.linear(layer, f"ffn_{name}{suffix}", x) for name in ("gate", "up"))
        return self.linear(layer, "ffn_down" + suffix, silu(gate) * up)


def adjacent_rope(x, position, n_rot, base, divisors=None, frequencies=None):
    """ggml's mode NORM: elements 2i and 2i + 1 of each head."""
    out = x.copy()
    for i in range(n_rot // 2):
        f = base ** (-2.0 * i / n_rot) if frequencies is None else frequencies[i]
        angle = position * f / (1.0 if divisors is None else divisors[i])
        a, b = x[:, 2 * i], x[:, 2 * i + 1]
        out[:, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
        out[:, 2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
    return out


def moe(m, layer, x, gating, renormalise, scale=1.0, weigh_input=False, least=0.0):
    """build_moe_ffn. Scores of all experts; a bias for the choice alone; groups; the chosen by falling score."""
    t = m.tensors
    logits = t[f"blk.{layer}.ffn_gate_inp.weight"] @ x
    scores = 1 / (1 + np.exp(-logits)) if gating == "sigmoid" else np.exp(logits) / np.exp(logits).sum()
    choice = scores + t[f"blk.{layer}.exp_probs_b.bias"] if m.has(layer, "exp_probs_b.bias") else scores.copy()
    if weigh_input:
        choice = logits
    groups = m.key("expert_group_count", 1)
    if groups > 1:
        split = np.sort(choice.reshape(groups, -1))[:, ::-1]
        judged = split[:, 0] + split[:, 1] if gating == "sigmoid" else split[:, 0]
        for g in np.argsort(-judged)[m.key("expert_group_used_count"):]:
            choice.reshape(groups, -1)[g] = -np.inf
    chosen = np.argsort(-choice)[:m.key("expert_used_count")]
    weights = scores[chosen]
    if renormalise:
        weights = weights / (weights.sum() + least)
    gate, up, down = (t[f"blk.{layer}.ffn_{name}_exps.weight"] for name in ("gate", "up", "down"))
    out = np.zeros_like(x)
    for e, w in zip(chosen, weights * scale):
        into = x * w if weigh_input else x
        out += down[e] @ (silu(gate[e] @ into) * (up[e] @ into)) * (1.0 if weigh_input else w)
    return out


def deepseek(m, token, position):
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        q, k, v = m.qkv(i, m.rms_of(i, "attn_norm", x))
        q, k = adjacent_rope(q, position, m.d, m.base), adjacent_rope(k, position, m.d, m.base)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5))
        h = m.rms_of(i, "ffn_norm", x)
        if m.has(i, "ffn_gate.weight"):
            x = x + m.ffn(i, h)
        else:
            x = x + moe(m, i, h, "softmax", m.unsaid.get("renormalise", False)) + m.ffn(i, h, "_shexp")
    return m.logits(m.rms(x, "output_norm.weight"))


def yarn_frequencies(m, n_rot):
    """ggml_rope_yarn_corr_dims and rope_yarn, with ext_factor 1."""
    factor, context = m.key("rope.scaling.factor"), m.key("rope.scaling.original_context_length")

    def corrected(rotations):
        return n_rot * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(m.base))

    low = max(0, math.floor(corrected(m.key("rope.scaling.yarn_beta_fast", 32.0))))
    high = min(n_rot - 1, math.ceil(corrected(m.key("rope.scaling.yarn_beta_slow", 1.0))))
    out = []
    for i in range(n_rot // 2):
        keep = 1 - min(1, max(0, (i - low) / max(0.001, high - low)))
        f = m.base ** (-2.0 * i / n_rot)
        out.append(f / factor * (1 - keep) + f * keep)
    return out


def deepseek2(m, token, position):
    t, rope, rank = m.tensors, m.n_rot, m.key("attention.kv_lora_rank")
    d = m.key("attention.key_length_mla", m.key("attention.key_length"))
    d_v = m.key("attention.value_length_mla", m.key("attention.value_length"))
    nope, scale, frequencies = d - rope, d ** -0.5, None
    magnitude = m.unsaid.get("rope_magnitude", 1.0)
    eps = m.unsaid.get("latent_eps", m.key("attention.layer_norm_rms_epsilon"))
    if m.key("rope.scaling.type") == "yarn":
        frequencies = yarn_frequencies(m, rope)
        scale *= (1 + m.key("rope.scaling.yarn_log_multiplier") * math.log(m.key("rope.scaling.factor"))) ** 2

    def latent_norm(x, name):
        return x / np.sqrt((x * x).mean() + eps) * t[name]

    def turn(x):
        return adjacent_rope(x, position, rope, m.base, frequencies=frequencies) * magnitude

    x = t["token_embd.weight"][token]
    for i in range(m.count):
        h = m.rms_of(i, "attn_norm", x)
        if m.has(i, "attn_q.weight"):
            q = m.linear(i, "attn_q", h)
        else:
            q = m.linear(i, "attn_q_b", latent_norm(m.linear(i, "attn_q_a", h), f"blk.{i}.attn_q_a_norm.weight"))
        q = q.reshape(m.heads, d)
        q_rope, low = turn(q[:, nope:]), m.linear(i, "attn_kv_a_mqa", h)
        k_rope, latent = turn(low[None, rank:]), latent_norm(low[:rank], f"blk.{i}.attn_kv_a_norm.weight")
        if m.has(i, "attn_k_b.weight"):  # k_b [heads, rank, nope], v_b [heads, v, rank]: one KV head, the latent
            absorbed = np.stack([t[f"blk.{i}.attn_k_b.weight"][a] @ q[a, :nope] for a in range(m.heads)])
            out = m.attention(i, np.concatenate([absorbed, q_rope], -1), np.concatenate([latent[None], k_rope], -1), latent[None], scale)
            out = out.reshape(m.heads, rank)
            out = np.concatenate([t[f"blk.{i}.attn_v_b.weight"][a] @ out[a] for a in range(m.heads)])
        else:
            kv = m.linear(i, "attn_kv_b", latent).reshape(m.heads, nope + d_v)
            k = np.concatenate([kv[:, :nope], np.repeat(k_rope, m.heads, 0)], -1)
            out = m.attention(i, np.concatenate([q[:, :nope], q_rope], -1), k, kv[:, nope:], scale)
        x = x + m.linear(i, "attn_output", out)
        h = m.rms_of(i, "ffn_norm", x)
        if i < m.key("leading_dense_block_count"):
            x = x + m.ffn(i, h)
        else:
            gating = {1: "softmax", 2: "sigmoid"}[m.key("expert_gating_func")]
            x = x + moe(m, i, h, gating, m.key("expert_weights_norm", False), m.key("expert_weights_scale")) + m.ffn(i, h, "_shexp")
    return m.logits(m.rms(x, "output_norm.weight"))


def glm4(m, token, position):
    """chatglm has two norms a layer, glm4 four. ffn_up holds gate, then up."""
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        q, k, v = m.qkv(i, m.rms_of(i, "attn_norm", x))
        q, k = adjacent_rope(q, position, m.n_rot, m.base), adjacent_rope(k, position, m.n_rot, m.base)
        h = m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5))
        x = x + (m.rms_of(i, "post_attention_norm", h) if m.architecture == "glm4" else h)
        gate, up = np.split(m.linear(i, "ffn_up", m.rms_of(i, "ffn_norm", x)), 2)
        h = m.linear(i, "ffn_down", silu(gate) * up)
        x = x + (m.rms_of(i, "post_ffw_norm", h) if m.architecture == "glm4" else h)
    return m.logits(m.rms(x, "output_norm.weight"))


def glm4moe(m, token, position):
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        q, k, v = m.qkv(i, m.rms_of(i, "attn_norm", x))
        if m.has(i, "attn_q_norm.weight"):
            q, k = m.rms_of(i, "attn_q_norm", q), m.rms_of(i, "attn_k_norm", k)
        q, k = neox_rope(q, position, m.n_rot, m.base), neox_rope(k, position, m.n_rot, m.base)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5))
        h = m.rms_of(i, "post_attention_norm", x)
        if i < m.key("leading_dense_block_count"):
            x = x + m.ffn(i, h)
        else:
            x = x + moe(m, i, h, "sigmoid", m.key("expert_weights_norm"), m.key("expert_weights_scale")) + m.ffn(i, h, "_shexp")
    return m.logits(m.rms(x, "output_norm.weight"))


def cohere(m, token, position):
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        slides = m.architecture == "cohere2" and m.unsaid.get("slides", [True, True, True, False] * 9)[i]
        h = m.ln(x, f"blk.{i}.attn_norm.weight")
        q, k, v = m.qkv(i, h)
        if m.has(i, "attn_q_norm.weight"):
            q, k = m.ln(q, f"blk.{i}.attn_q_norm.weight"), m.ln(k, f"blk.{i}.attn_k_norm.weight")
        if slides or m.architecture != "cohere2":
            q, k = adjacent_rope(q, position, m.d, m.base), adjacent_rope(k, position, m.d, m.base)
        attended = m.attention(i, q, k, v, m.d ** -0.5, m.key("attention.sliding_window") if slides else None)
        x = x + m.linear(i, "attn_output", attended) + m.ffn(i, h)
    return m.logits(m.ln(x, "output_norm.weight")) * m.key("logit_scale")


def granite(m, token, position):
    residual = m.key("residual_scale")
    x = m.tensors["token_embd.weight"][token] * m.key("embedding_scale")
    for i in range(m.count):
        q, k, v = m.qkv(i, m.rms_of(i, "attn_norm", x))
        q, k = adjacent_rope(q, position, m.d, m.base), adjacent_rope(k, position, m.d, m.base)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.key("attention.scale"))) * residual
        h = m.rms_of(i, "ffn_norm", x)
        if m.has(i, "ffn_gate.weight"):
            out = m.ffn(i, h)
        else:
            out = moe(m, i, h, "softmax", True) + (m.ffn(i, h, "_shexp") if m.has(i, "ffn_gate_shexp.weight") else 0)
        x = x + out * residual
    return m.logits(m.rms(x, "output_norm.weight")) / m.key("logit_scale")


def olmo2(m, token, position):
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        q, k = (m.rms_of(i, f"attn_{name}_norm", m.linear(i, "attn_" + name, x)).reshape(-1, m.d) for name in "qk")
        v = m.linear(i, "attn_v", x).reshape(-1, m.d)
        q, k = neox_rope(q, position, m.d, m.base), neox_rope(k, position, m.d, m.base)
        x = x + m.rms_of(i, "post_attention_norm", m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5)))
        x = x + m.rms_of(i, "post_ffw_norm", m.ffn(i, x))
    return m.logits(m.rms(x, "output_norm.weight"))


def olmoe(m, token, position):
    x, bound = m.tensors["token_embd.weight"][token], m.unsaid.get("clip", math.inf)
    for i in range(m.count):
        h = m.rms_of(i, "attn_norm", x)
        q, k = (m.rms_of(i, f"attn_{name}_norm", m.linear(i, "attn_" + name, h)) for name in "qk")
        q, k, v = (np.clip(a, -bound, bound).reshape(-1, m.d) for a in (q, k, m.linear(i, "attn_v", h)))
        q, k = neox_rope(q, position, m.d, m.base), neox_rope(k, position, m.d, m.base)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5))
        x = x + moe(m, i, m.rms_of(i, "ffn_norm", x), "softmax", m.unsaid.get("renormalise", False))
    return m.logits(m.rms(x, "output_norm.weight"))


def smollm3(m, token, position):
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        q, k, v = m.qkv(i, m.rms_of(i, "attn_norm", x))
        rope = (i + 1) % m.unsaid.get("without_rope_every", 4) != 0
        if rope:
            q, k = adjacent_rope(q, position, m.d, m.base), adjacent_rope(k, position, m.d, m.base)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5, None if rope else m.unsaid.get("window")))
        x = x + m.ffn(i, m.rms_of(i, "ffn_norm", x))
    return m.logits(m.rms(x, "output_norm.weight"))


def llama4(m, token, position):
    chunk, floor = m.unsaid.get("chunk", 8192), m.unsaid.get("floor_scale", 8192)
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        q, k, v = m.qkv(i, m.rms_of(i, "attn_norm", x))
        rope = m.unsaid.get("rope", [True, True, True, False] * 9)[i]
        if rope:
            divisors = m.tensors.get("rope_freqs.weight")
            q, k = adjacent_rope(q, position, m.d, m.base, divisors), adjacent_rope(k, position, m.d, m.base, divisors)
            if m.unsaid.get("qk_norm", True):
                q, k = (a / np.sqrt((a * a).mean(-1, keepdims=True) + m.key("attention.layer_norm_rms_epsilon")) for a in (q, k))
        else:
            q = q * (math.log(1 + (position + 1) // floor) * 0.1 + 1)
        x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5, position % chunk + 1 if rope else None))
        h = m.rms_of(i, "ffn_norm", x)
        if m.has(i, "ffn_gate_inp.weight"):
            x = x + moe(m, i, h, "sigmoid", False, weigh_input=True) + m.ffn(i, h, "_shexp")
        else:
            x = x + m.ffn(i, h)
    return m.logits(m.rms(x, "output_norm.weight"))


def shortconv(m, layer, x):
    """build_shortconv_block, ggml_ssm_conv: the state is the last columns of b * x."""
    b, c, x = np.split(m.linear(layer, "shortconv.in_proj", x), 3)
    kernel = m.tensors[f"blk.{layer}.shortconv.conv.weight"]  # [width, taps]
    columns = m.cache[layer][0]
    columns.append(b * x)
    out = np.zeros_like(x)
    for back, column in enumerate(reversed(columns[-kernel.shape[1]:])):
        out += kernel[:, kernel.shape[1] - 1 - back] * column
    return m.linear(layer, "shortconv.out_proj", c * out)


def lfm2(m, token, position):
    x = m.tensors["token_embd.weight"][token]
    for i in range(m.count):
        h = m.rms_of(i, "attn_norm", x)
        if m.kv_heads[i] > 0:
            q, k, v = m.qkv(i, h)
            q, k = m.rms_of(i, "attn_q_norm", q), m.rms_of(i, "attn_k_norm", k)
            q, k = neox_rope(q, position, m.d, m.base), neox_rope(k, position, m.d, m.base)
            x = x + m.linear(i, "attn_output", m.attention(i, q, k, v, m.d ** -0.5))
        else:
            x = x + shortconv(m, i, h)
        h = m.rms_of(i, "ffn_norm", x)
        if m.has(i, "ffn_gate.weight"):
            x = x + m.ffn(i, h)
        else:
            x = x + moe(m, i, h, "sigmoid", m.unsaid.get("renormalise", True), m.unsaid.get("scale", 1.0), least=1e-6)
    return m.logits(m.rms(x, "token_embd_norm.weight"))


def gemma4_experts(m, i, attn_out):
    t = m.tensors
    tmp = m.plain_rms(attn_out) / math.sqrt(len(attn_out)) * t[f"blk.{i}.ffn_gate_inp.scale"]
    logits = t[f"blk.{i}.ffn_gate_inp.weight"] @ tmp
    scores = np.exp(logits - logits.max())
    scores /= scores.sum()
    chosen = np.argsort(-scores)[:m.key("expert_used_count")]
    weights = scores[chosen] / scores[chosen].sum()
    h = m.rms_of(i, "pre_ffw_norm_2", attn_out)
    out = np.zeros_like(h)
    for e, w in zip(chosen, weights):
        gate, up = np.split(t[f"blk.{i}.ffn_gate_up_exps.weight"][e] @ h, 2)
        out += t[f"blk.{i}.ffn_down_exps.weight"][e] @ (gelu_tanh(gate) * up) * w * t[f"blk.{i}.ffn_down_exps.scale"][e]
    return m.rms_of(i, "post_ffw_norm_2", out)


def divided_rope(x, position, base, divisors):
    """ggml's mode NEOX over the whole head, with frequency factors."""
    half, out = x.shape[1] // 2, x.copy()
    for j in range(half):
        angle = position * base ** (-j / half) / divisors[j]
        out[:, j] = x[:, j] * math.cos(angle) - x[:, j + half] * math.sin(angle)
        out[:, j + half] = x[:, j] * math.sin(angle) + x[:, j + half] * math.cos(angle)
    return out


def gemma4(m, token, position):
    t, heads, per_layer = m.tensors, m.key("attention.head_count"), m.key("embedding_length_per_layer_input")
    swa, window = m.key("attention.sliding_window_pattern"), m.key("attention.sliding_window")
    own = m.count - m.key("attention.shared_kv_layers")
    x = t["token_embd.weight"][token]
    x = x * math.sqrt(len(x))
    if per_layer:  # build_inp_per_layer, project_per_layer_inputs
        projected = (t["per_layer_model_proj.weight"] @ x / math.sqrt(len(x))).reshape(m.count, per_layer)
        projected = m.rms(projected, "per_layer_proj_norm.weight")
        rows = t["per_layer_token_embd.weight"][token].reshape(m.count, per_layer) * math.sqrt(per_layer)
        inputs = (projected + rows) / math.sqrt(2)
    for i in range(m.count):
        base = m.key("rope.freq_base_swa") if swa[i] else m.key("rope.freq_base")
        d = m.key("attention.key_length_swa") if swa[i] else m.key("attention.key_length")
        divisors = np.ones(d // 2) if swa[i] else t["rope_freqs.weight"]
        h = m.rms_of(i, "attn_norm", x)
        q = divided_rope(m.rms_of(i, "attn_q_norm", m.linear(i, "attn_q", h).reshape(heads, d)), position, base, divisors)
        if i < own:
            k = m.linear(i, "attn_k", h).reshape(-1, d)
            v = m.linear(i, "attn_v", h).reshape(-1, d) if m.has(i, "attn_v.weight") else k
            k = divided_rope(m.rms_of(i, "attn_k_norm", k), position, base, divisors)
            attended = m.attention(i, q, k, m.plain_rms(v), 1.0, window if swa[i] else None)
        else:
            source = max(j for j in range(own) if swa[j] == swa[i])
            k, v = (kept.pop() for kept in m.cache[source])  # attention() puts them back
            attended = m.attention(source, q, k, v, 1.0, window if swa[i] else None)
        attn_out = x + m.rms_of(i, "post_attention_norm", m.linear(i, "attn_output", attended))
        h = m.rms_of(i, "ffn_norm", attn_out)
        h = m.linear(i, "ffn_down", gelu_tanh(m.linear(i, "ffn_gate", h)) * m.linear(i, "ffn_up", h))
        if m.has(i, "ffn_gate_inp.weight"):
            h = m.rms_of(i, "post_ffw_norm_1", h) + gemma4_experts(m, i, attn_out)
        x = attn_out + m.rms_of(i, "post_ffw_norm", h)
        if per_layer:
            x = x + m.rms_of(i, "post_norm", m.linear(i, "proj", gelu_tanh(m.linear(i, "inp_gate", x)) * inputs[i]))
        x = x * t[f"blk.{i}.layer_output_scale.weight"]
    logits, cap = m.logits(m.rms(x, "output_norm.weight")), m.key("final_logit_softcapping")
    return np.tanh(logits / cap) * cap


GRAPHS = {"deepseek": deepseek, "deepseek2": deepseek2, "chatglm": glm4, "glm4": glm4, "glm4moe": glm4moe, "command-r": cohere,
          "cohere2": cohere, "granite": granite, "granitemoe": granite, "olmo2": olmo2, "olmoe": olmoe, "smollm3": smollm3,
          "llama4": llama4, "lfm2": lfm2, "lfm2moe": lfm2, "gemma4": gemma4}


def run(keys, tensors, ids, **unsaid):
    """-> logits [T, vocabulary]."""
    m = Model(keys, tensors, unsaid)
    return np.array([GRAPHS[m.architecture](m, token, position) for position, token in enumerate(ids)])
