#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the golden cases of make_modern.py against second sources, and measures what bugs would move.

usage: check_modern.py graphs [CASE_SUBSTRING]      the cases, recomputed by modern_second_source.py from each of their GGUF forms
       check_modern.py fixtures DIR                 modern_reference.py on DIR/FAMILY/{config.json, model.safetensors, logits.json},
                                                    whose float64 logits Hugging Face transformers computed
       check_modern.py mutations [CASE_SUBSTRING]   one bug at a time: how far it moves a logit, in tolerances of the case too
needs: python3-torch and python3-numpy
"""

import contextlib
import json
import os
import sys
import tempfile
from unittest import mock

import numpy as np
import torch

import make_modern
import modern_gguf
import modern_reference as m
import modern_second_source
import reference
from checkpoint_io import read_checkpoint, read_gguf, read_safetensors

HERE = os.path.dirname(os.path.abspath(__file__))


class Case:
    def __init__(self, name, family):
        self.name, self.directory = name, os.path.join(HERE, family, name)
        self.config, self.weights = read_checkpoint(self.directory)
        golden = read_safetensors(self.directory + "/golden.safetensors")
        with open(self.directory + "/golden.json") as f:
            self.atol = json.load(f)["suggested_logits_atol"]
        self.prompts = [(golden[f"p{j}.ids"].tolist(), golden[f"p{j}.logits"]) for j in (0, 1)]

    def forms(self):
        """(name, keys and tensors) of each GGUF form; where GGUF cannot say all of the config, what it would hold if it could."""
        files = [f for f in ("model.gguf", "model-kv_b.gguf") if os.path.exists(f"{self.directory}/{f}")]
        for file in files:
            yield file, read_gguf(f"{self.directory}/{file}")
        if not files:
            with tempfile.TemporaryDirectory() as directory:
                modern_gguf.convert(self.config, self.weights, directory + "/model.gguf")
                yield "as if", read_gguf(directory + "/model.gguf")


def cases():
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    return [Case(name, family) for name, family, *_ in make_modern.CASES if wanted in name]


def unsaid(c):
    """What modern_second_source.py must be told because GGUF has no key for it."""
    kind, n = c["model_type"], c["num_hidden_layers"]
    if kind in ("deepseek", "olmoe"):
        out = dict(renormalise=c["norm_topk_prob"])
        return dict(out, clip=c["clip_qkv"]) if c.get("clip_qkv") else out
    if kind == "deepseek_v3":
        s, log = c["rope_scaling"], np.log(c["rope_scaling"]["factor"])
        return dict(latent_eps=1e-6, rope_magnitude=(1 + 0.1 * s["mscale"] * log) / (1 + 0.1 * s["mscale_all_dim"] * log))
    if kind == "cohere2":
        return dict(slides=[t == "sliding_attention" for t in c["layer_types"]])
    if kind == "lfm2_moe":
        return dict(renormalise=c["norm_topk_prob"], scale=c["routed_scaling_factor"])
    if kind == "smollm3":
        return dict(without_rope_every=c["no_rope_layer_interval"], window=c["sliding_window"])
    if kind == "llama4_text":
        return dict(chunk=c["attention_chunk_size"], floor_scale=c["floor_scale"], qk_norm=c["use_qk_norm"],
                    rope=c["no_rope_layers"] or [(i + 1) % 4 != 0 for i in range(n)])
    return {}


def check_graphs():
    for case in cases():
        for form, (keys, tensors) in case.forms():
            told = unsaid(case.config) if form == "as if" else {}
            worst = max(np.abs(modern_second_source.run(keys, tensors, ids, **told) - want.numpy()).max() for ids, want in case.prompts)
            largest = max(float(want.abs().max()) for _, want in case.prompts)
            print(f"{case.name:36} {form:16} max |difference| {worst:.1e}  of max |logit| {largest:4.1f}  tolerance {case.atol:.1e}  "
                  f"{', '.join(told)}")


def check_fixtures(folder):
    for family in ("cohere", "deepseek_v2", "glm4", "granite", "granitemoe", "olmo2", "olmoe"):
        config, weights = read_checkpoint(os.path.join(folder, family))
        with open(os.path.join(folder, family, "logits.json")) as f:
            want = json.load(f)
        line, largest = f"{family:12}", max(float(np.abs(l).max()) for l in want["logits"])
        for dtype in (torch.float32, torch.float64):
            worst = max(float((m.forward(config, reference.Params(weights, dtype), ids).double() - torch.tensor(l, dtype=torch.float64))
                              .abs().max()) for ids, l in zip(want["sequences"], want["logits"]))
            line += f"  {str(dtype)[6:]} max |difference| / max |logit| {worst / largest:.1e}"
        print(line, f" max |logit| {largest:.3f}")


# Bugs. A bug is (description, changes of the config, changes of the weights, replacements in modern_reference.py), the changes of the
# config and the replacements given as they are or as a function of the config, the changes of the weights a function of config,
# name and tensor.


def bug(what, config=None, weights=None, replace=None, **functions):
    return what, config or {}, weights, replace or functions


def flipped(key, default=False):
    return lambda c: {key: not c.get(key, default)}


def plus(key, amount):
    return lambda c: {key: c[key] + amount}


def named(*parts):
    """Applies a function to the tensors whose name has one of the parts."""
    def apply(function):
        return lambda c, name, t: function(c, t) if any(part in name for part in parts) else t
    return apply


def swapped_halves(dim):
    return lambda c, t: torch.cat(t.chunk(2, dim)[::-1], dim)


def rows_of_heads(c, t, first, second):
    """Rows [heads, first + second] -> [heads, second + first]: what reading the parts in the other order amounts to."""
    heads = t.view(c["num_attention_heads"], first + second, -1)
    return torch.cat([heads[:, first:], heads[:, :first]], 1).reshape(t.shape)


def no_norm_of_width(key):
    """Leaves out the norms of this width, told by the config's key."""
    def replace(c):
        return dict(rms_norm=lambda x, w, eps: x * w if len(w) == c.get(key) else reference.rms_norm(x, w, eps))
    return replace


def whole_head_frequencies(c):
    """Frequencies base^(-2i/D) of the whole head, the first ones used."""
    d = reference.head_dim(c)
    return dict(inverse_frequencies=lambda dim, base, scaling, dtype: (1.0 / base ** (torch.arange(0, dim, 2).to(dtype) / d), 1.0))


def zero(c, t):
    return torch.zeros_like(t)


PAIRS, HALF, TABLES, SCALE, TEMPERATURE = m.rope_pairs, m.rope_half, m.rope_tables, m.latent_scale, m.temperature
GROUPS, SIGMOID, V2, GRANITE_EXPERTS, LLAMA4_EXPERTS, CLIP = (
    m.kept_groups, m.sigmoid_routing, m.v2_routing, m.granite_experts, m.llama4_experts, m.clip)

EVERY = [bug("epsilon of the norms a tenth", lambda c: {key: c[key] / 10 for key in ("rms_norm_eps", "layer_norm_eps") if key in c}),
         bug("rope_theta doubled", lambda c: dict(rope_theta=2 * c["rope_theta"]))]
NO_ROPE = bug("no rope", rope_half=lambda x, tables: x, rope_pairs=lambda x, tables: x)
HALF_BUGS = [bug("rope of adjacent pairs", rope_half=PAIRS), NO_ROPE]
PAIR_BUGS = [bug("rope of halves", rope_pairs=HALF), NO_ROPE]
GROUPED = bug("kv head = h % kv_heads", kv_head_of=lambda heads, kv_heads: torch.arange(heads) % kv_heads)
NO_BIAS = bug("no biases of attention", weights=named("self_attn.q_proj.bias", "k_proj.bias", "v_proj.bias", "o_proj.bias")(zero))
NO_V_BIAS = bug("no bias on v", weights=named("v_proj.bias")(zero))
NO_O_BIAS = bug("no bias on o", weights=named("o_proj.bias")(zero))
NO_MLP_BIAS = bug("no biases of the MLP", weights=named("gate_proj.bias", "up_proj.bias", "down_proj.bias")(zero))
FEWER = bug("one expert too few", plus("num_experts_per_tok", -1))
RENORM = bug("norm_topk_prob read the wrong way round", flipped("norm_topk_prob"))
NO_SHARED = bug("shared experts left out", moe_with_shared_experts=lambda layer, t, chosen, weights: layer.experts(t, chosen, weights))
PARTIAL = [bug("rope on whole heads", dict(partial_rotary_factor=1.0)),
           bug("frequencies of the whole head", replace=whole_head_frequencies),
           bug("rope of the last elements of a head", rope_half=lambda x, tables: HALF(x.flip(-1), tables).flip(-1),
               rope_pairs=lambda x, tables: PAIRS(x.flip(-1), tables).flip(-1))]
SWAPPED_GATE = bug("gate and up swapped", weights=named("gate_up_proj", "input_linear")(
    lambda c, t: swapped_halves(-1 if c["model_type"] == "llama4_text" else -2)(c, t)))


def scaled_weights(change):
    def routing(original):
        def changed(c, layer, t, trace):
            chosen, weights = original(c, layer, t, trace)
            return chosen, change(c, weights)
        return changed
    return dict(v2_routing=routing(V2), sigmoid_routing=routing(SIGMOID))


def groups_judged_by(best):
    return lambda scores, groups, kept, _, trace: GROUPS(scores, groups, kept, best, trace)


def zero_masked_routing(c, layer, t, trace):
    """transformers masks what is out of the kept groups with 0 instead of minus infinity."""
    scores = torch.sigmoid(m.linear(t, layer("mlp.gate.weight")))
    choice = scores + layer("mlp.gate.e_score_correction_bias")
    if c.get("n_group", 1) > 1:
        choice = choice.masked_fill(~GROUPS(choice, c["n_group"], c["topk_group"], 2, trace), 0.0)
    weights = scores.gather(1, chosen := choice.topk(c["num_experts_per_tok"], -1).indices)
    return chosen, (weights / weights.sum(-1, keepdim=True) if c["norm_topk_prob"] else weights) * c["routed_scaling_factor"]


def biased_weights(c, layer, t, trace):
    chosen, _ = SIGMOID(c, layer, t, trace)
    weights = (torch.sigmoid(m.linear(t, layer("mlp.gate.weight"))) + layer("mlp.gate.e_score_correction_bias")).gather(1, chosen)
    return chosen, (weights / weights.sum(-1, keepdim=True) if c["norm_topk_prob"] else weights) * c["routed_scaling_factor"]


def softmax_weights(c, layer, t, trace):
    chosen, _ = SIGMOID(c, layer, t, trace)
    weights = torch.softmax(m.linear(t, layer("mlp.gate.weight")), -1).gather(1, chosen)
    return chosen, (weights / weights.sum(-1, keepdim=True) if c["norm_topk_prob"] else weights) * c["routed_scaling_factor"]


def plain_yarn_tables(c, n, dtype):
    """YaRN's own magnitude of cos and sin, 0.1 ln(factor) + 1."""
    return TABLES(n, c["qk_rope_head_dim"], c["rope_theta"], c["rope_scaling"], dtype)


def quotient_one_tables(c, n, dtype):
    return TABLES(n, c["qk_rope_head_dim"], c["rope_theta"], dict(c["rope_scaling"], attention_factor=1.0), dtype)


LATENT = PAIR_BUGS + [
    bug("q read as rope, nope", weights=lambda c, name, t: rows_of_heads(c, t, c["qk_nope_head_dim"], c["qk_rope_head_dim"])
        if name.endswith(("q_b_proj.weight", "self_attn.q_proj.weight")) else t),
    bug("kv_b read as value, key", weights=named("kv_b_proj")(
        lambda c, t: rows_of_heads(c, t, c["qk_nope_head_dim"], c["v_head_dim"]))),
    bug("kv_b read as all keys, then all values", weights=named("kv_b_proj")(lambda c, t: torch.cat(
        [part.reshape(c["num_attention_heads"], -1, t.shape[1]) for part in t.split(
            [c["num_attention_heads"] * c["qk_nope_head_dim"], c["num_attention_heads"] * c["v_head_dim"]])], 1).reshape(t.shape))),
    bug("kv_a read as rope, latent", weights=named("kv_a_proj")(
        lambda c, t: torch.cat([t[c["qk_rope_head_dim"]:], t[:c["qk_rope_head_dim"]]]))),
    bug("no norm of the latent", replace=no_norm_of_width("kv_lora_rank")),
    bug("no norm of q's low rank", replace=no_norm_of_width("q_lora_rank")),
    bug("latent norms with rms_norm_eps", replace=lambda c: dict(LATENT_EPS=c["rms_norm_eps"])),
    bug("scores not scaled by mscale_all_dim", replace=lambda c: dict(
        latent_scale=lambda c: (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) ** -0.5)),
    bug("scores scaled by the magnitude, not its square", replace=lambda c: dict(
        latent_scale=lambda c: (SCALE(c) * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) ** -0.5) ** 0.5)),
    bug("scale from the nope part alone", latent_scale=lambda c: SCALE(c) * (
        (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]) / c["qk_nope_head_dim"]) ** 0.5),
    bug("cos and sin times 0.1 ln(factor) + 1", latent_tables=plain_yarn_tables),
    bug("mscale ignored (cos and sin times 1)", latent_tables=quotient_one_tables),
    bug("YaRN's frequencies left out", latent_tables=lambda c, n, dtype: TABLES(
        n, c["qk_rope_head_dim"], c["rope_theta"], None, dtype)),
    bug("YaRN's bounds not rounded", lambda c: dict(rope_scaling=dict(c["rope_scaling"], truncate=False))),
    bug("the scaling as linear", lambda c: dict(rope_scaling=dict(c["rope_scaling"], type="linear"))),
    FEWER, RENORM, NO_SHARED,
    bug("weights not scaled", replace=scaled_weights(lambda c, w: w / c["routed_scaling_factor"])),
    bug("groups ignored", dict(n_group=1, topk_group=1, topk_method="greedy")),
    bug("one group too few", lambda c: dict(topk_group=max(1, c["topk_group"] - 1))),
]
SIGMOID_BUGS = [
    bug("a group judged by its best expert", kept_groups=groups_judged_by(1)),
    bug("no bias in the choice", weights=named("e_score_correction_bias")(zero)),
    bug("the bias in the weights too", sigmoid_routing=biased_weights),
    bug("softmax in place of sigmoids", sigmoid_routing=softmax_weights),
    bug("(no bug) masked with 0, not minus infinity", sigmoid_routing=zero_masked_routing),
]
PREDICTION = bug("the prediction layer run as a layer", lambda c: dict(
    num_hidden_layers=c["num_hidden_layers"] + c.get("num_nextn_predict_layers", 0)))


def sequential(c):
    """The same norm a second time, of x and what attention adds, for the MLP."""
    def forward(c, p, ids, trace):
        n, d, eps = len(ids), reference.head_dim(c), c["layer_norm_eps"]
        second = c["model_type"] == "cohere2"
        types = m.layer_types(c, c.get("sliding_window_pattern", 4)) if second else ["full_attention"] * c["num_hidden_layers"]
        tables = TABLES(n, d, c["rope_theta"], None, p.dtype)
        x = p("model.embed_tokens.weight")[ids]
        for i in range(c["num_hidden_layers"]):
            layer, slides = m.Layer(p, i), types[i] == "sliding_attention"
            q, k, v = m.qkv(c, layer, m.layer_norm(x, layer("input_layernorm.weight"), eps))
            if c.get("use_qk_norm"):
                q, k = (m.layer_norm(a, layer(f"self_attn.{name}_norm.weight"), eps) for a, name in ((q, "q"), (k, "k")))
            if not second or slides:
                q, k = PAIRS(q, tables), PAIRS(k, tables)
            x = x + layer.linear("self_attn.o_proj", m.attend(
                q, k, v, d ** -0.5, m.sliding(n, c["sliding_window"]) if slides else m.causal(n)))
            x = x + layer.mlp("mlp.", m.layer_norm(x, layer("input_layernorm.weight"), eps))
        return m.head(c, p, m.layer_norm(x, p("model.norm.weight"), eps), tied=True) * c["logit_scale"]
    return dict(FORWARD={c["model_type"]: forward})


COHERE = PAIR_BUGS + [
    bug("RMSNorm in place of LayerNorm", layer_norm=reference.rms_norm),
    bug("MLP after attention, not beside it", replace=sequential),
    bug("no logit_scale", dict(logit_scale=1.0)),
    bug("divided by logit_scale", lambda c: dict(logit_scale=1 / c["logit_scale"])),
]


def llama4_output_scaled(c, layer, t, trace):
    logits = m.linear(t, layer("feed_forward.router.weight"))
    chosen = trace.chosen(logits, c["num_experts_per_tok"])
    scores = torch.sigmoid(logits.gather(1, chosen))
    gate_up, down = layer("feed_forward.experts.gate_up_proj"), layer("feed_forward.experts.down_proj")
    out = layer.mlp("feed_forward.shared_expert.", t)
    for e in range(c["num_local_experts"]):
        token, slot = torch.where(chosen == e)
        gate, up = (t[token] @ gate_up[e]).chunk(2, -1)
        out = out.index_add(0, token, (m.silu(gate) * up) @ down[e] * scores[token, slot, None])
    return out


def llama4_without_shared(c, layer, t, trace):
    return LLAMA4_EXPERTS(c, layer, t, trace) - layer.mlp("feed_forward.shared_expert.", t)


def llama4_softmax(c, layer, t, trace):
    sigmoid = torch.sigmoid
    with mock.patch.object(torch, "sigmoid", lambda x: torch.ones_like(x) if x.shape[-1] == 1 else sigmoid(x)):
        return LLAMA4_EXPERTS(c, layer, t, trace)



def granite_softmax_over_all(c, layer, t, trace):
    logits = m.linear(t, layer("block_sparse_moe.router.layer.weight"))
    chosen = trace.chosen(logits, c["num_experts_per_tok"])
    share = torch.softmax(logits, -1).gather(1, chosen).sum(-1, keepdim=True)
    return GRANITE_EXPERTS(c, layer, t, trace) * share  # the weights of the chosen, before they are made to sum to 1


QK_WHOLE = bug("QK-norm per head", whole_norm=lambda x, w, eps: reference.rms_norm(x, torch.ones_like(x[0, 0]), eps) * w.view(
    x.shape[1:]))
NO_QK = bug("no QK-norm", whole_norm=lambda x, w, eps: x, head_norm=lambda x, w, eps: x)

BUGS = {
    "deepseek": HALF_BUGS + [GROUPED, FEWER, RENORM, NO_SHARED],
    "deepseek_v2": LATENT + [bug("a group judged by its two best", kept_groups=groups_judged_by(2))],
    "deepseek_v3": LATENT + SIGMOID_BUGS + [PREDICTION],
    "glm4_moe": HALF_BUGS + PARTIAL + [
        GROUPED, NO_BIAS, NO_V_BIAS, NO_QK, FEWER, RENORM, NO_SHARED,
        bug("weights not scaled", replace=scaled_weights(lambda c, w: w / c["routed_scaling_factor"])),
        bug("groups ignored", dict(n_group=1, topk_group=1)), PREDICTION] + SIGMOID_BUGS,
    "glm": PAIR_BUGS + PARTIAL + [GROUPED, NO_BIAS, NO_V_BIAS, SWAPPED_GATE],
    "glm4": PAIR_BUGS + PARTIAL + [
        GROUPED, NO_BIAS, NO_V_BIAS, SWAPPED_GATE, bug("no post norms", post_norm=lambda x, w, eps: x),
        bug("post_attention_layernorm and post_self_attn_layernorm swapped", weights="swap")],
    "cohere": COHERE + [
        GROUPED, bug("no QK-norm", dict(use_qk_norm=False)),
        bug("QK-norm with the first head's weight for all", weights=named("q_norm", "k_norm")(lambda c, t: t[:1].expand_as(t)))],
    "cohere2": COHERE + [
        GROUPED, NO_BIAS, NO_O_BIAS, bug("rope in every layer", slides_without_rope=lambda c, slides: True),
        bug("rope in the full layers alone", slides_without_rope=lambda c, slides: not slides),
        bug("window one too wide", plus("sliding_window", 1)), bug("no window", dict(sliding_window=10 ** 9)),
        bug("pattern one layer early", lambda c: dict(layer_types=m.layer_types(c, 4)[1:] + m.layer_types(c, 4)[:1]))],
    "granite": HALF_BUGS + [
        GROUPED, NO_BIAS, NO_O_BIAS, NO_MLP_BIAS,
        bug("attention_multiplier ignored (D^-0.5)", lambda c: dict(
            attention_multiplier=(c["hidden_size"] // c["num_attention_heads"]) ** -0.5)),
        bug("no embedding_multiplier", dict(embedding_multiplier=1.0)), bug("no residual_multiplier", dict(residual_multiplier=1.0)),
        bug("no logits_scaling", dict(logits_scaling=1.0)),
        bug("times logits_scaling", lambda c: dict(logits_scaling=1 / c["logits_scaling"]))],
    "olmo2": HALF_BUGS + [GROUPED, QK_WHOLE, NO_QK, NO_BIAS, bug("no post norms", post_norm=lambda x, w, eps: x),
                          bug("head not tied as it says", flipped("tie_word_embeddings"))],
    "olmoe": HALF_BUGS + [GROUPED, QK_WHOLE, NO_QK, NO_BIAS, FEWER, RENORM, bug("no clip_qkv", dict(clip_qkv=None)),
                          bug("clip of k and v left out", replace=lambda c: dict(clip=lambda x, bound: CLIP(
                              x, bound if x.shape[1] == c["num_attention_heads"] else None)))],
    "smollm3": HALF_BUGS + [
        GROUPED, NO_BIAS, NO_O_BIAS, NO_MLP_BIAS,
        bug("rope in every layer", lambda c: dict(no_rope_layers=[1] * c["num_hidden_layers"], layer_types=[
            "full_attention" if r else "sliding_attention" for r in m.uses_rope(c)])),
        bug("no_rope_layers read the wrong way round", lambda c: dict(no_rope_layers=[1 - r for r in m.uses_rope(c)])),
        bug("window one too wide", lambda c: dict(sliding_window=c["sliding_window"] and c["sliding_window"] + 1)),
        bug("no window", dict(use_sliding_window=False)),
        bug("window in every layer", lambda c: dict(layer_types=["sliding_attention"] * c["num_hidden_layers"]))],
    "llama4_text": PAIR_BUGS + [
        GROUPED, NO_BIAS, bug("chunks as a sliding window", chunked=m.sliding),
        bug("no chunks", chunked=lambda n, chunk: m.causal(n)), bug("chunk one too long", plus("attention_chunk_size", 1)),
        bug("chunks in every layer", lambda c: dict(layer_types=["chunked_attention"] * c["num_hidden_layers"])),
        bug("rope in every layer", lambda c: dict(no_rope_layers=[1] * c["num_hidden_layers"], layer_types=[
            "chunked_attention" if r else "full_attention" for r in m.uses_rope(c)])),
        bug("no temperature", dict(attn_temperature_tuning=False)),
        bug("temperature counts positions from 0", temperature=lambda c, n, dtype: torch.cat(
            [torch.ones(1, 1, 1, dtype=dtype), TEMPERATURE(c, n, dtype)[:-1]])),
        bug("QK-norm read the wrong way round", flipped("use_qk_norm", True)),
        bug("no llama3 scaling", dict(rope_scaling=None)),
        bug("the expert's output scaled, not its input", llama4_experts=llama4_output_scaled),
        bug("weight 1 (softmax over the one chosen)", llama4_experts=llama4_softmax),
        bug("shared expert left out", llama4_experts=llama4_without_shared), SWAPPED_GATE,
        bug("head not tied as it says", flipped("tie_word_embeddings"))],
}
BUGS["granitemoe"] = BUGS["granite"] + [FEWER, SWAPPED_GATE, bug(
    "softmax over all experts, not renormalised", granite_experts=granite_softmax_over_all)]
BUGS["granitemoeshared"] = BUGS["granitemoe"] + [bug("shared expert left out", lambda c: dict(shared_intermediate_size=0))]


def changed_weights(change, c, weights):
    if change is None:
        return weights
    if change == "swap":
        return {name: weights[name.replace("post_attention_layernorm", "X").replace("post_self_attn_layernorm", "post_attention_layernorm")
                              .replace("X", "post_self_attn_layernorm")] for name in weights}
    return {name: change(c, name, t) for name, t in weights.items()}


def check_mutations():
    for case in cases():
        for what, config, weights, functions in BUGS[case.config["model_type"]] + EVERY:
            config, functions = (v(case.config) if callable(v) else v for v in (config, functions))
            c = dict(case.config, **config)
            tensors = changed_weights(weights, case.config, case.weights)
            same = c == case.config and not functions and all(torch.equal(t, case.weights[name]) for name, t in tensors.items())
            params = reference.Params(tensors, torch.float32)
            try:
                with mock.patch.multiple(m, **functions) if functions else contextlib.nullcontext():
                    got = [m.forward(c, params, ids) for ids, _ in case.prompts]
            except KeyError as e:  # a tensor that the config as changed wants is not there
                print(f"{case.name:36} {what:62} wants {e.args[0]}")
                continue
            moved = max(float((g - want).abs().max()) for g, (_, want) in zip(got, case.prompts))
            if same or moved < 1e-6:
                print(f"{case.name:36} {what:62} –")
            else:
                print(f"{case.name:36} {what:62} {moved:8.1e} = {moved / case.atol:8.0f} tolerances"
                      f"{'' if moved > 20 * case.atol else '   LITTLE'}")


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["graphs"]:
        check_graphs()
    elif sys.argv[1:2] == ["fixtures"] and len(sys.argv) == 3:
        check_fixtures(sys.argv[2])
    elif sys.argv[1:2] == ["mutations"]:
        check_mutations()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
