#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the golden cases of the classic families against second sources, and measures what bugs would move.

usage: check_classic.py readings [SUBSTRING]   the cases, recomputed by classic_second_source.py from model.gguf and from the
                                               checkpoint, where it reads them; and EXTRAS, options that no case has
       check_classic.py fixtures DIR           classic_reference.py on DIR/FAMILY/{config.json, model.safetensors, logits.json},
                                               whose float64 logits Hugging Face transformers computed
       check_classic.py slopes                 the slopes of ALiBi against both published ways to write them
       check_classic.py mutations [SUBSTRING]  one bug at a time: how far it moves a logit, in tolerances of the case too
needs: python3-torch and python3-numpy
"""

import contextlib
import json
import math
import os
import sys
import tempfile
from unittest import mock

import numpy as np
import torch

import classic_gguf
import classic_reference
import classic_second_source
import make_classic
from check_goldens import Case, bug, without
from checkpoint_io import read_checkpoint, read_gguf
from make_goldens import generator, make_weights
from reference import Params

CASES = [f"{family}/{name}" for name, family, _, _, _ in make_classic.CASES]

EXTRAS = [  # options of published configs that no case has: what, config, options of the shapes
    ("OPT: norms after the blocks, wide embedding", make_classic.opt_config(do_layer_norm_before=False),
     {}),
    ("OPT: norms without weights, no last norm", make_classic.opt_config(
        layer_norm_elementwise_affine=False, _remove_final_layer_norm=True), {}),
    ("BLOOM: residual after the norms", make_classic.bloom_config(apply_residual_connection_post_layernorm=True), {}),
    ("MPT-7B-StoryWriter: clip_qkv", make_classic.mpt_config(attn_config=dict(clip_qkv=1.5, alibi_bias_max=16)), {}),
    ("Falcon-RW: ALiBi, 5 heads", make_classic.falcon_config(
        alibi=True, multi_query=False, parallel_attn=False, bias=True), {}),
    ("GPT-BigCode: scores not scaled", make_classic.gptbigcode_config(scale_attn_weights=False), {}),
    ("Phi: norms of q and k, grouped heads", make_classic.phi_config(qk_layernorm=True, num_key_value_heads=2), {}),
    ("InternLM2: dynamic scaling at work", make_classic.internlm2_config(
        max_position_embeddings=16, rope_scaling=dict(factor=2.0, type="dynamic")), {}),
    ("MiniCPM4: long divisors of longrope", make_classic.minicpm_config(
        num_attention_heads=3, num_key_value_heads=1, max_position_embeddings=72, rope_scaling=dict(
            long_factor=make_classic.long_factors(6, 9.0), original_max_position_embeddings=18, rope_type="longrope",
            short_factor=make_classic.long_factors(6, 1.5))), {}),
]


def gguf_of(c, weights):
    with tempfile.TemporaryDirectory() as directory:
        classic_gguf.convert(c, weights, directory + "/model.gguf")
        return read_gguf(directory + "/model.gguf")


def check_readings(part):
    for name in CASES:
        if part not in name:
            continue
        case, readings = Case(name), {}
        if classic_gguf.inexpressible(case.config) is None:
            keys, tensors = read_gguf(case.directory + "/model.gguf")
            readings["GGUF"] = lambda ids: classic_second_source.run_gguf(keys, tensors, ids)
        if case.config["model_type"] in classic_second_source.READINGS and (
                case.config["model_type"] != "minicpm" or case.config["rope_scaling"]):
            arrays = {n: t.double().numpy() for n, t in case.weights.items()}
            readings["checkpoint"] = lambda ids: classic_second_source.run_hf(case.config, arrays, ids)
        largest = max(float(want.abs().max()) for _, want in case.prompts)
        for source, run in readings.items():
            worst = max(np.abs(run(ids) - want.numpy()).max() for ids, want in case.prompts)
            print(f"{name:46} {source:11} max |difference| {worst:.1e}  of max |logit| {largest:4.1f}  tolerance {case.atol:.1e}")
    for what, c, options in EXTRAS:
        if part not in what:
            continue
        weights = make_weights(make_classic.SHAPES[c["model_type"]](c, options), 7, "f32")
        ids = generator(7, "prompt").integers(0, c["vocab_size"], 29).tolist()
        want = classic_reference.forward(c, Params(weights, torch.float64), ids).numpy()
        if c["model_type"] == "mpt":
            got = classic_second_source.run_gguf(*gguf_of(c, weights), ids)
        else:
            got = classic_second_source.run_hf(c, {n: t.double().numpy() for n, t in weights.items()}, ids)
        print(f"{what:58} max |difference| {np.abs(got - want).max():.1e}  of max |logit| {np.abs(want).max():4.1f}")


def check_fixtures(folder):
    for family in ("opt", "bloom", "gptj", "gptneo", "falcon_mq", "gptbigcode", "starcoder2", "phi", "phi3", "gemma", "internlm2"):
        config, weights = read_checkpoint(os.path.join(folder, family))
        with open(os.path.join(folder, family, "logits.json")) as f:
            want = json.load(f)
        worst, largest = {torch.float32: 0.0, torch.float64: 0.0}, 0.0
        for ids, logits in zip(want["sequences"], want["logits"]):
            logits = torch.tensor(logits, dtype=torch.float64)
            largest = max(largest, float(logits.abs().max()))
            for dtype in worst:
                got = classic_reference.forward(config, Params(weights, dtype), ids).double()
                worst[dtype] = max(worst[dtype], float((got - logits).abs().max()))
        print(f"{family:12} max |difference| / max |logit|: f32 {worst[torch.float32] / largest:.1e}  "
              f"f64 {worst[torch.float64] / largest:.1e}  max |logit| {largest:.3f}")


def check_slopes():
    """BLOOM and Falcon write the slopes from the power of two below the heads, MPT from the one above; ggml as BLOOM."""
    worst = 0.0
    for heads in range(1, 129):
        for largest in (8, 16):
            above = 2 ** math.ceil(math.log2(heads))
            mpt = [2.0 ** (-largest * (h + 1) / above) for h in range(above)]
            mpt = (mpt[1::2] + mpt[::2])[:heads] if above != heads else mpt
            ours = classic_reference.alibi_slopes(heads, largest, torch.float64).tolist()
            ggml = [classic_second_source.ggml_slope(h, heads, largest) for h in range(heads)]
            worst = max(worst, max(abs(a / b - 1) for a, b in zip(ours, mpt)), max(abs(a / b - 1) for a, b in zip(ours, ggml)))
    print(f"slopes, 1 to 128 heads, largest 8 and 16: greatest relative difference {worst:.1e}")


# Bugs, as in check_goldens.py. Functions replace those of classic_reference.py.

R = classic_reference
ATTEND, LONGROPE, TABLES, DENSE, NORM, RMS = R.attend, R.longrope, R.rope_tables, R.dense, R.layer_norm, R.rms_norm
ROPE, ADJACENT, SLOPES, BY_GROUP, IN_TURN = R.rope, R.rope_adjacent, R.alibi_slopes, R.split_by_group, R.split_in_turn
FALCON_NORMS, PARALLEL = R.falcon_norms, R.falcon_is_parallel


def with_scale(change):
    return lambda q, k, v, scale, window=None, bias=None: ATTEND(q, k, v, change(scale, q.shape[-1]), window, bias)


def rms_in_place(p, name, x, eps):
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * p(name + ".weight")
    bias = p.get(name + ".bias")
    return x if bias is None else x + bias


def skip_norm(ending):
    return lambda p, name, x, eps: x if name.endswith(ending) else NORM(p, name, x, eps)


def renamed(a, b):
    """The weights with the names of two modules exchanged."""
    def change(weights):
        def other(name):
            return name.replace(a, "#").replace(b, a).replace("#", b)
        return {other(name): t for name, t in weights.items()}
    return change


def added_norm(ending, source):
    """A norm that the checkpoint lacks, with the weights of another."""
    def change(weights):
        return {**weights, **{n.replace(source, ending): t for n, t in weights.items() if source in n}}
    return change


def interleaved(fused):
    return fused[..., 0::2], fused[..., 1::2]


ADDED = {}


def attention_in_mlp(p, name, x):
    """What attention adds is added to the MLP's input too, in GPT-J and Phi."""
    if name.endswith(("attn.out_proj", "self_attn.dense")):
        ADDED["attention"] = DENSE(p, name, x)
        return ADDED["attention"]
    return DENSE(p, name, x + ADDED["attention"] if name.endswith(("mlp.fc_in", "mlp.fc1")) else x)


def second_first(fused):
    return fused.chunk(2, -1)[::-1]


def k_and_v_first(fused, heads, kv_heads):
    kv, q = fused.view(len(fused), heads + 2 * kv_heads, -1).split((2 * kv_heads, heads), 1)
    return q, kv[:, :kv_heads], kv[:, kv_heads:]


def exchanged(split):
    return lambda *a: tuple(split(*a)[i] for i in (0, 2, 1))


def whole_dim_frequencies(c, dim, n, dtype, base=None):
    """Frequencies of a whole head, the first ones used."""
    width, heads = c.get("hidden_size", c.get("n_embd")), c.get("num_attention_heads", c.get("n_head"))
    cos, sin = TABLES(c, width // heads, n, dtype, base)
    return cos[:, :dim // 2], sin[:, :dim // 2]


def other_theta(theta):
    return lambda c, dim, n, dtype, base=None: TABLES({**c, "rope_theta": theta}, dim, n, dtype, None if base is None else theta)


def magnitude_one(*a):
    return LONGROPE(*a)[0], 1.0


def always(length):
    def longrope(dim, base, scaling, n, context, original):
        return LONGROPE(dim, base, scaling, original + 1 if length == "long" else 1, context, original)
    return longrope


def factors_multiply(dim, base, scaling, n, context, original):
    scaling = {**scaling, **{key: [1 / f for f in scaling[key]] for key in ("long_factor", "short_factor")}}
    return LONGROPE(dim, base, scaling, n, context, original)


def one_token_early(dim, base, scaling, n, context, original):
    return LONGROPE(dim, base, scaling, n + 1, context, original)


def naive_slopes(heads, largest, dtype):
    return torch.tensor([2.0 ** (-largest * (h + 1) / heads) for h in range(heads)], dtype=dtype)


GELUS = {**R.ACTIVATIONS, **{name: R.gelu_tanh if f is R.gelu_erf else R.gelu_erf if f is R.gelu_tanh else f
                             for name, f in R.ACTIVATIONS.items()}}


def other_gelu():
    return bug("the other form of GELU", ACTIVATIONS=GELUS)


UNSCALED = bug("scores not scaled", attend=with_scale(lambda scale, d: 1.0))
NORMS = [bug("RMSNorm in place of LayerNorm", layer_norm=rms_in_place)]
NORM_BIAS = [bug("no bias of the norms", layer_norm=lambda p, name, x, eps: NORM(
    Params({n: t for n, t in p.tensors.items() if not n.endswith("bias")}, p.dtype), name, x, eps))]
HALF_ROPE = [bug("rope of adjacent pairs", rope=ADJACENT), bug("no rope", rope=lambda x, tables: x)]
GROUPED = [bug("kv head = h % kv_heads", kv_head_of=lambda heads, kv_heads: torch.arange(heads) % kv_heads)]
THETA = [bug("theta 10000 (or 1000000 where it is)", rope_tables=lambda c, dim, n, dtype, base=None: other_theta(
    1e6 if c.get("rope_theta", 1e4) == 1e4 else 1e4)(c, dim, n, dtype, base))]
TIED = [bug("head tied although it is not", dict(tie_word_embeddings=True))]
WINDOW = [bug("window one too wide", lambda c: dict(sliding_window=(c["sliding_window"] or 1000) + 1)),
          bug("window one too narrow", lambda c: dict(sliding_window=(c["sliding_window"] or 1000) - 1)),
          bug("no window", dict(sliding_window=None))]

BUGS = {
    "opt": NORMS + NORM_BIAS + [
        UNSCALED,
        bug("positions from row 0", OPT_POSITION_OFFSET=0),
        bug("positions from row 1", OPT_POSITION_OFFSET=1),
        bug("gelu in place of relu, relu in place of gelu", ACTIVATIONS={"relu": R.gelu_erf, "gelu": torch.relu}),
        other_gelu(),
        bug("no bias on q, k, v, out", weights=without("_proj.bias")),
        bug("no bias in the MLP", weights=without("fc1.bias", "fc2.bias")),
        bug("last norm left out", dict(_remove_final_layer_norm=True)),
        bug("norms after the blocks", dict(do_layer_norm_before=False)),
        bug("self_attn_layer_norm and final_layer_norm exchanged", weights=lambda weights: {
            **weights, **renamed("self_attn_layer_norm", "final_layer_norm")(
                {n: t for n, t in weights.items() if "layers." in n})}),
    ],
    "bloom": NORMS + NORM_BIAS + [
        UNSCALED,
        bug("no ALiBi", alibi=lambda slopes, n: torch.zeros(len(slopes), n, n, dtype=slopes.dtype)),
        bug("ALiBi with the other sign", alibi_slopes=lambda *a: -SLOPES(*a)),
        bug("slopes 2^(-8 (h + 1) / heads)", alibi_slopes=naive_slopes),
        bug("slopes in the order of falling size", alibi_slopes=lambda *a: SLOPES(*a).sort(descending=True).values),
        bug("slopes of the next heads", alibi_slopes=lambda *a: SLOPES(*a).roll(1)),
        bug("no norm of the embedding", layer_norm=skip_norm("word_embeddings_layernorm")),
        bug("qkv rows read as [q; k; v]", split_by_head=R.split_thirds),
        bug("residual after the norms", dict(apply_residual_connection_post_layernorm=True)),
        bug("the other form of GELU", gelu_tanh=R.gelu_erf),
        bug("no bias on q, k, v", weights=without("query_key_value.bias")),
        bug("no bias on dense", weights=without("attention.dense.bias")),
        bug("no bias in the MLP", weights=without("h_to_4h.bias", "4h_to_h.bias")),
    ],
    "mpt": NORMS + [
        UNSCALED,
        bug("no ALiBi", alibi=lambda slopes, n: torch.zeros(len(slopes), n, n, dtype=slopes.dtype)),
        bug("slopes 2^(-largest (h + 1) / heads)", alibi_slopes=naive_slopes),
        bug("slopes in the order of falling size", alibi_slopes=lambda *a: SLOPES(*a).sort(descending=True).values),
        bug("alibi_bias_max 8 (or 16 where it is)", alibi_slopes=lambda heads, largest, dtype: SLOPES(heads, 24 - largest, dtype)),
        bug("qkv rows of each head together", split_thirds=R.split_by_head),
        other_gelu(),
        bug("clip_qkv 2 although it is null", lambda c: dict(attn_config={**c["attn_config"], "clip_qkv": 2.0})),
    ],
    "gptj": NORMS + NORM_BIAS + [
        UNSCALED,
        bug("rope of pairs (i, i + dim / 2)", rope_adjacent=ROPE),
        bug("no rope", rope_adjacent=lambda x, tables: x),
        bug("rotary_dim ignored (whole head)", lambda c: dict(rotary_dim=c["n_embd"] // c["n_head"])),
        bug("frequencies of the whole head, the first ones used", rope_tables=whole_dim_frequencies),
        bug("the MLP reads what attention adds", dense=attention_in_mlp),
        bug("no bias of the head", weights=without("lm_head.bias")),
        bug("no bias in the MLP", weights=without("fc_in.bias", "fc_out.bias")),
        other_gelu(),
        bug("head tied although it is not", weights=lambda weights: {
            n: weights["transformer.wte.weight"] if n == "lm_head.weight" else t for n, t in weights.items()}),
    ],
    "gpt_neo": NORMS + NORM_BIAS + [
        bug("scores scaled by 1 / sqrt(head_dim)", attend=with_scale(lambda scale, d: d ** -0.5)),
        bug("window one too wide", lambda c: dict(window_size=c["window_size"] + 1)),
        bug("window one too narrow", lambda c: dict(window_size=c["window_size"] - 1)),
        bug("no window", dict(window_size=1000)),
        bug("window in all layers", lambda c: dict(attention_types=[[["local"], c["num_layers"]]])),
        bug("first layer local, the others in turn", lambda c: dict(attention_types=[[[kind], 1] for kind in (
            c["attention_layers"][1:] + c["attention_layers"][:1])])),
        bug("no bias on out_proj", weights=without("out_proj.bias")),
        bug("no positions", weights=without("wpe.weight")),
        bug("no bias in the MLP", weights=without("c_fc.bias", "c_proj.bias")),
        other_gelu(),
    ],
    "falcon": NORMS + NORM_BIAS + HALF_ROPE + THETA + [
        UNSCALED,
        bug("k and v exchanged in the fused matrix", falcon_split=exchanged(R.falcon_split)),
        bug("groups read as [q; k; v]", falcon_split=lambda c, fused, heads: IN_TURN(
            fused, heads, (fused.shape[1] * heads // c["hidden_size"] - heads) // 2)),
        bug("rows read as [k; v; q]", falcon_split=lambda c, fused, heads: k_and_v_first(
            fused, heads, (fused.shape[1] * heads // c["hidden_size"] - heads) // 2)),
        bug("heads read as [head, 3, D]", falcon_split=lambda c, fused, heads: by_head_padded(fused, heads, c["hidden_size"])),
        bug("ln_attn and ln_mlp exchanged", falcon_norms=lambda *a: FALCON_NORMS(*a)[::-1]),
        bug("one norm for both blocks (ln_attn)", falcon_norms=lambda *a: (FALCON_NORMS(*a)[0],) * 2),
        bug("one norm for both blocks (ln_mlp)", falcon_norms=lambda *a: (FALCON_NORMS(*a)[1],) * 2),
        bug("parallel blocks run in sequence, or the other way", falcon_is_parallel=lambda c: not PARALLEL(c),
            weights=lambda weights: {**added_norm("post_attention_layernorm", "ln_mlp")(
                added_norm("post_attention_layernorm", "input_layernorm")(weights)), **weights}),
        bug("no bias on the fused matrix and dense", weights=without("query_key_value.bias", "attention.dense.bias")),
        bug("no bias in the MLP", weights=without("h_to_4h.bias", "4h_to_h.bias")),
        other_gelu(),
    ] + GROUPED,
    "gpt_bigcode": NORMS + NORM_BIAS + [
        UNSCALED,
        bug("k and v exchanged in the fused matrix", gptbigcode_split=exchanged(R.gptbigcode_split)),
        bug("rows read as [q; k; v]", gptbigcode_split=lambda c, fused, heads: IN_TURN(
            fused, heads, 1 if c["multi_query"] else heads)),
        bug("rows read as [k; v; q]", gptbigcode_split=lambda c, fused, heads: k_and_v_first(
            fused, heads, 1 if c["multi_query"] else heads)),
        bug("no positions", weights=without("wpe.weight")),
        bug("no bias on c_attn", weights=without("c_attn.bias")),
        bug("no bias on c_proj", weights=without("attn.c_proj.bias")),
        bug("no bias in the MLP", weights=without("c_fc.bias", "mlp.c_proj.bias")),
        other_gelu(),
    ],
    "starcoder2": NORMS + NORM_BIAS + HALF_ROPE + THETA + GROUPED + WINDOW + [
        UNSCALED,
        bug("no bias on q, k, v", weights=without("q_proj.bias", "k_proj.bias", "v_proj.bias")),
        bug("no bias on o", weights=without("o_proj.bias")),
        bug("no bias in the MLP", weights=without("c_fc.bias", "c_proj.bias")),
        other_gelu(),
    ] + TIED,
    "phi": NORMS + NORM_BIAS + HALF_ROPE + [
        UNSCALED,
        bug("partial_rotary_factor ignored", dict(partial_rotary_factor=1.0)),
        bug("frequencies of the whole head, the first ones used", rope_tables=whole_dim_frequencies),
        bug("the MLP reads what attention adds", dense=attention_in_mlp),
        bug("no bias of the head", weights=without("lm_head.bias")),
        bug("no bias on q, k, v", weights=without("q_proj.bias", "k_proj.bias", "v_proj.bias")),
        bug("no bias on dense", weights=without("dense.bias")),
        bug("no bias in the MLP", weights=without("fc1.bias", "fc2.bias")),
        other_gelu(),
    ],
    "phi3": HALF_ROPE + THETA + GROUPED + WINDOW + [
        UNSCALED,
        bug("gate and up exchanged", split_gate_up=second_first),
        bug("rows of gate and up alternate", split_gate_up=interleaved),
        bug("k and v exchanged in the fused matrix", split_in_turn=exchanged(IN_TURN)),
        bug("rows of each kv head together", split_in_turn=BY_GROUP),
        bug("partial_rotary_factor ignored", lambda c: dict(partial_rotary_factor=1.0) if not c["rope_scaling"] else {},
            rope_tables=lambda c, dim, n, dtype, base=None: TABLES(
                longer(c), c["hidden_size"] // c["num_attention_heads"], n, dtype, base)),
        bug("longrope left out", dict(rope_scaling=None)),
        bug("cos and sin without their factor", longrope=magnitude_one),
        bug("short divisors always", longrope=always("short")),
        bug("long divisors always", longrope=always("long")),
        bug("long divisors one token early", longrope=one_token_early),
        bug("divisors multiply", longrope=factors_multiply),
    ] + TIED,
    "gemma": HALF_ROPE + THETA + GROUPED + [
        bug("w in place of 1 + w", gemma_norm=lambda x, w, eps: RMS(x, w, eps)),
        bug("no embedding scale", gemma_embedding_scale=lambda c: 1.0),
        bug("embedding scale rounded to bf16", gemma_embedding_scale=lambda c: float(
            torch.tensor(c["hidden_size"] ** 0.5).bfloat16())),
        bug("scale of the scores from width / heads", replace=lambda c: dict(attend=with_scale(
            lambda scale, d: (c["hidden_size"] // c["num_attention_heads"]) ** -0.5))),
        bug("erf in place of tanh GELU", gemma_activation=lambda c: R.gelu_erf),
        bug("silu in place of GELU", gemma_activation=lambda c: R.silu),
    ],
    "internlm2": HALF_ROPE + THETA + GROUPED + [
        UNSCALED,
        bug("rows read as [q; k; v]", split_by_group=IN_TURN),
        bug("k and v exchanged in the fused matrix", split_by_group=exchanged(BY_GROUP)),
        bug("w1 and w3 exchanged", weights=renamed("feed_forward.w1.", "feed_forward.w3.")),
        bug("dynamic scaling as linear", lambda c: dict(rope_scaling=c["rope_scaling"] and dict(factor=2.0, type="linear"))),
        bug("no bias on the fused matrix", weights=without("wqkv.bias")),
        bug("no bias on wo", weights=without("wo.bias")),
    ],
    "minicpm": HALF_ROPE + THETA + GROUPED + [
        UNSCALED,
        bug("scale_emb left out", minicpm_embedding_factor=lambda c: 1.0),
        bug("scale_emb 12", dict(scale_emb=12)),
        bug("scale_depth left out", minicpm_residual_factor=lambda c: 1.0),
        bug("scale_depth without its division by sqrt(layers)", minicpm_residual_factor=lambda c: c["scale_depth"]),
        bug("dim_model_base left out", minicpm_head_factor=lambda c: 1.0),
        bug("logits multiplied by hidden_size / dim_model_base", minicpm_head_factor=lambda c:
            c["hidden_size"] / c["dim_model_base"]),
        bug("head reads scaled embeddings", lambda c: dict(dim_model_base=c["dim_model_base"] * c["scale_emb"])),
        bug("longrope left out", dict(rope_scaling=None)),
        bug("long divisors always", longrope=always("long")),
        bug("gate and up exchanged", weights=renamed("gate_proj", "up_proj")),
    ] + TIED,
    "mini-gpt": NORMS + NORM_BIAS + HALF_ROPE + THETA + [
        UNSCALED,
        bug("qkv rows of each head together", split_thirds=R.split_by_head),
        bug("no bias in the MLP", weights=without("c_fc.bias", "mlp.c_proj.bias")),
        other_gelu(),
    ],
}


def longer(c):
    """The config with divisors for more pairs: the last one repeated."""
    if not c["rope_scaling"]:
        return c
    scaling = {**c["rope_scaling"]}
    for key in ("long_factor", "short_factor"):
        d = c["hidden_size"] // c["num_attention_heads"]
        scaling[key] = scaling[key] + scaling[key][-1:] * (d // 2 - len(scaling[key]))
    return {**c, "rope_scaling": scaling}


def by_head_padded(fused, heads, width):
    """[head, 3, D] where the fused matrix has other rows: rows are taken in turn, again from the first where they end."""
    rows = torch.arange(3 * width) % fused.shape[1]
    return R.split_by_head(fused[:, rows], heads)


def check_mutations(part):
    for name in CASES:
        if part not in name:
            continue
        case, least = Case(name), (math.inf, "")
        for what, config, weights, functions in BUGS[case.config["model_type"]]:
            config, functions = (v(case.config) if callable(v) else v for v in (config, functions))
            c, params = dict(case.config, **config), Params(weights(case.weights) if weights else case.weights, torch.float32)
            with mock.patch.multiple(R, **functions) if functions else contextlib.nullcontext():
                got = [classic_reference.forward(c, params, ids) for ids, _ in case.prompts]
            moved = max(float((g - want).abs().max()) for g, (_, want) in zip(got, case.prompts))
            if moved < 0.1 * case.atol:  # not a bug with this config
                continue
            changed = sum(int((g.argmax(-1) != want.argmax(-1)).sum()) for g, (_, want) in zip(got, case.prompts))
            least = min(least, (moved / case.atol, what))
            print(f"{name.split('/')[1]:32} {what:56} {moved:8.1e} = {moved / case.atol:8.1f} tolerances, argmax changed "
                  f"{changed:2}/{sum(len(ids) for ids, _ in case.prompts)}")
        print(f"{name.split('/')[1]:32} least: {least[1]}, {least[0]:.1f} tolerances")


def main():
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    part = sys.argv[2] if len(sys.argv) == 3 else ""
    if sys.argv[1:2] == ["readings"]:
        check_readings(part)
    elif sys.argv[1:2] == ["fixtures"] and part:
        check_fixtures(part)
    elif sys.argv[1:] == ["slopes"]:
        check_slopes()
    elif sys.argv[1:2] == ["mutations"]:
        check_mutations(part)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
