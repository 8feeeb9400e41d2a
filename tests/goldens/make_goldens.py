#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden cases: random checkpoints in Hugging Face layout, and what reference.py computes for them.

usage: make_goldens.py OUT_DIR [CASE_SUBSTRING]        then make_gguf.py for each case, and check_goldens.py
needs: python3-torch and python3-numpy of Debian 12 (torch 1.13)

Writes OUT_DIR/FAMILY/CASE/{config.json, model.safetensors, golden.json, golden.safetensors}; README.md says what they hold.
Weights are seeded by case and tensor name: config.json and model.safetensors come out byte for byte as committed. Outputs differ
from the committed ones by rounding, as the order of sums is the torch build's; those of gpt-oss are from the published torch
implementation. Stored weights are widened exactly to f32, activations are f32; a second pass in f64 measures what rounding does.
"""

import hashlib
import json
import math
import os
import shutil
import sys
import zlib

import numpy as np
import torch

import reference
from checkpoint_io import write_safetensors

N_GREEDY = 16
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
DTYPE_NAMES = {"f32": "float32", "bf16": "bfloat16"}
NORM = ("norm", 1.0)

# Random weights. A family's shapes are a list of (name, shape, distribution): ("n", sigma) normal; ("norm", m) m (1 + normal / 4);
# ("gnorm", m, sigma) normal around m; ("mxfp4", sigma) normal, quantised; ("is", tensor) as it is, in its own type.


def generator(seed, name):
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def normal(seed, name, shape):
    return torch.from_numpy(generator(seed, name).standard_normal(shape).astype(np.float32))


def mxfp4_quantize(w):
    """[..., K] f32 -> blocks u8 [..., K/32, 16], scales u8 [..., K/32]. OCP MX: scale 2^(floor(log2 max) - 2)."""
    groups = w.reshape(*w.shape[:-1], w.shape[-1] // 32, 32)
    exponent = torch.floor(torch.log2(torch.clamp(groups.abs().amax(-1), min=2.0 ** -100))) - 2
    exponent = torch.clamp(exponent, -127, 127)
    x = groups / torch.pow(2.0, exponent)[..., None]
    middles = torch.tensor([.25, .75, 1.25, 1.75, 2.5, 3.5, 5.0])
    codes = torch.bucketize(x.abs().contiguous(), middles).to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).contiguous(), (exponent + 127).to(torch.uint8).contiguous()


def make_weights(shapes, seed, dtype):
    out = {}
    for name, shape, (kind, *parameters) in shapes:
        if kind == "is":
            out[name] = parameters[0]
            continue
        r = normal(seed, name, shape)
        if kind == "mxfp4":  # block scales vary, so that the exponents differ within a row
            blocks = normal(seed, name + "#blk", shape[:-1] + (shape[-1] // 32,))
            scale = torch.exp2(blocks * 0.6).repeat_interleave(32, -1)
            out[name + "_blocks"], out[name + "_scales"] = mxfp4_quantize(r * parameters[0] * scale / 1.15)
        elif kind == "gnorm":
            out[name] = (parameters[0] + parameters[1] * r).to(DTYPES[dtype])
        elif kind == "norm":
            out[name] = (parameters[0] * (1 + 0.25 * r)).to(DTYPES[dtype])
        else:
            out[name] = (r * parameters[0]).to(DTYPES[dtype])
    return out


def causal_mask(n):
    return torch.tril(torch.ones(n, n)).view(1, 1, n, n)


def projections(c):
    """Attention's four matrices: name, inputs, outputs."""
    width, d = c["hidden_size"], reference.head_dim(c)
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    return ("q_proj", width, q), ("k_proj", width, kv), ("v_proj", width, kv), ("o_proj", q, width)


def swiglu_shapes(prefix, width, inner):
    for name, out, n in (("gate_proj", inner, width), ("up_proj", inner, width), ("down_proj", width, inner)):
        yield f"{prefix}{name}.weight", (out, n), ("n", 1.8 / math.sqrt(n))


def gpt2_shapes(c, o):
    width, inner, prefix = c["n_embd"], c["n_inner"] or 4 * c["n_embd"], o.get("prefix", "")
    yield prefix + "wte.weight", (c["vocab_size"], width), ("n", 0.5)
    yield prefix + "wpe.weight", (c["n_positions"], width), ("n", 0.5)
    for i in range(c["n_layer"]):
        b = f"{prefix}h.{i}."
        if o.get("mask_buffers"):
            yield b + "attn.bias", None, ("is", causal_mask(c["n_positions"]))
        for norm in ("ln_1", "ln_2"):
            yield f"{b}{norm}.weight", (width,), NORM
            yield f"{b}{norm}.bias", (width,), ("n", 0.2)
        for name, n, out in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                             ("mlp.c_fc", width, inner), ("mlp.c_proj", inner, width)):
            yield f"{b}{name}.weight", (n, out), ("n", 1.5 / math.sqrt(n))
            yield f"{b}{name}.bias", (out,), ("n", 0.2)
    yield prefix + "ln_f.weight", (width,), NORM
    yield prefix + "ln_f.bias", (width,), ("n", 0.2)


def llama_shapes(c, o):
    width = c["hidden_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width), ("n", o.get("emb", 1.0))
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield b + "input_layernorm.weight", (width,), NORM
        yield b + "post_attention_layernorm.weight", (width,), NORM
        for name, n, out in projections(c):
            yield f"{b}self_attn.{name}.weight", (out, n), ("n", (1.5 if name[0] in "qk" else 1.8) / math.sqrt(n))
            if name != "o_proj" and c.get("qkv_bias"):
                yield f"{b}self_attn.{name}.bias", (out,), ("n", 0.5)
        if reference.is_sparse(c, i):
            yield b + "mlp.gate.weight", (c["num_experts"], width), ("n", 3.0 / math.sqrt(width))
            for e in range(c["num_experts"]):
                yield from swiglu_shapes(f"{b}mlp.experts.{e}.", width, c["moe_intermediate_size"])
            yield from swiglu_shapes(b + "mlp.shared_expert.", width, c["shared_expert_intermediate_size"])
            yield b + "mlp.shared_expert_gate.weight", (1, width), ("n", 2.0 / math.sqrt(width))
        else:
            yield from swiglu_shapes(b + "mlp.", width, c["intermediate_size"])
    yield "model.norm.weight", (width,), NORM
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], width), ("n", 3.0 / math.sqrt(width))


def gptneox_shapes(c, o):
    width, inner = c["hidden_size"], c["intermediate_size"]
    rotary = int(width // c["num_attention_heads"] * c["rotary_pct"])
    yield "gpt_neox.embed_in.weight", (c["vocab_size"], width), ("n", 1.0)
    for i in range(c["num_hidden_layers"]):
        b = f"gpt_neox.layers.{i}."
        if o.get("mask_buffers"):  # as in Pythia's files
            yield b + "attention.bias", None, ("is", causal_mask(c["max_position_embeddings"]).to(torch.uint8))
            yield b + "attention.masked_bias", None, ("is", torch.tensor(-1e9))
            frequencies = reference.inverse_frequencies(rotary, c["rotary_emb_base"], None, torch.float32)[0]
            yield b + "attention.rotary_emb.inv_freq", None, ("is", frequencies)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{b}{norm}.weight", (width,), NORM
            yield f"{b}{norm}.bias", (width,), ("n", 0.3)
        for name, n, out in (("attention.query_key_value", width, 3 * width), ("attention.dense", width, width),
                             ("mlp.dense_h_to_4h", width, inner), ("mlp.dense_4h_to_h", inner, width)):
            yield f"{b}{name}.weight", (out, n), ("n", 1.6 / math.sqrt(n))
            yield f"{b}{name}.bias", (out,), ("n", 0.4)
    yield "gpt_neox.final_layer_norm.weight", (width,), NORM
    yield "gpt_neox.final_layer_norm.bias", (width,), ("n", 0.3)
    yield "embed_out.weight", (c["vocab_size"], width), ("n", 3.0 / math.sqrt(width))


def gemma_shapes(c, o):
    width, inner, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width), ("n", 0.5 / math.sqrt(width))
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            yield f"{b}{norm}_layernorm.weight", (width,), ("n", 0.4)  # stored as w, applied as 1 + w
        for name, n, out in projections(c):
            yield f"{b}self_attn.{name}.weight", (out, n), ("n", 1.8 / math.sqrt(n))
        yield b + "self_attn.q_norm.weight", (d,), ("n", 0.4)
        yield b + "self_attn.k_norm.weight", (d,), ("n", 0.4)
        yield from swiglu_shapes(b + "mlp.", width, inner)
    if c.get("tie_word_embeddings") is False:
        yield "model.norm.weight", (width,), ("n", 0.4)
        yield "lm_head.weight", (c["vocab_size"], width), ("n", 3.0 / math.sqrt(width))
    else:
        yield "model.norm.weight", (width,), ("gnorm", 5.0, 0.6)


def gptoss_shapes(c, o):
    width, inner, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width), ("n", 1.0)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield b + "input_layernorm.weight", (width,), NORM
        yield b + "post_attention_layernorm.weight", (width,), NORM
        for name, n, out in projections(c):
            yield f"{b}self_attn.{name}.weight", (out, n), ("n", (1.2 if name[0] in "qk" else 1.5) / math.sqrt(n))
            yield f"{b}self_attn.{name}.bias", (out,), ("n", 0.3)
        yield b + "self_attn.sinks", (c["num_attention_heads"],), ("n", 1.5)
        yield b + "mlp.router.weight", (experts, width), ("n", 2.5 / math.sqrt(width))
        yield b + "mlp.router.bias", (experts,), ("n", 2.0)
        yield b + "mlp.experts.gate_up_proj", (experts, 2 * inner, width), ("mxfp4", 3.5 / math.sqrt(width))
        yield b + "mlp.experts.gate_up_proj_bias", (experts, 2 * inner), ("n", 1.0)
        yield b + "mlp.experts.down_proj", (experts, width, inner), ("mxfp4", 0.4 / math.sqrt(inner))
        yield b + "mlp.experts.down_proj_bias", (experts, width), ("n", 0.2)
    yield "model.norm.weight", (width,), NORM
    yield "lm_head.weight", (c["vocab_size"], width), ("n", 3.0 / math.sqrt(width))


SHAPES = {"gpt2": gpt2_shapes, "llama": llama_shapes, "moe": llama_shapes, "gptneox": gptneox_shapes, "gemma": gemma_shapes,
          "gptoss": gptoss_shapes}

# Configs, with the keys that published ones have.


def gpt2_config(**k):
    c = dict(activation_function="gelu_new", architectures=["GPT2LMHeadModel"], attn_pdrop=0.1, bos_token_id=0, embd_pdrop=0.1,
             eos_token_id=0, initializer_range=0.02, layer_norm_epsilon=1e-05, model_type="gpt2", n_ctx=64, n_embd=48, n_head=4,
             n_inner=None, n_layer=3, n_positions=64, reorder_and_upcast_attn=False, resid_pdrop=0.1,
             scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, use_cache=True, vocab_size=97)
    c.update(k)
    return c


def llama_config(**k):
    c = dict(architectures=["LlamaForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=1, eos_token_id=2,
             hidden_act="silu", hidden_size=64, initializer_range=0.02, intermediate_size=172, max_position_embeddings=512,
             mlp_bias=False, model_type="llama", num_attention_heads=8, num_hidden_layers=3, num_key_value_heads=2,
             pretraining_tp=1, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False,
             use_cache=True, vocab_size=131)
    c.update(k)
    return c


def mistral_config(**k):
    c = llama_config(architectures=["MistralForCausalLM"], model_type="mistral", **k)
    for key in ("attention_bias", "mlp_bias", "pretraining_tp", "rope_scaling"):
        del c[key]
    return c


def qwen2moe_config(**k):
    c = dict(architectures=["Qwen2MoeForCausalLM"], attention_dropout=0.0, bos_token_id=1, decoder_sparse_step=1, eos_token_id=2,
             hidden_act="silu", hidden_size=64, initializer_range=0.02, intermediate_size=96, max_position_embeddings=512,
             max_window_layers=2, mlp_only_layers=[], model_type="qwen2_moe", moe_intermediate_size=48, norm_topk_prob=False,
             num_attention_heads=4, num_experts=4, num_experts_per_tok=2, num_hidden_layers=3, num_key_value_heads=2,
             output_router_logits=False, qkv_bias=True, rms_norm_eps=1e-06, rope_scaling=None, rope_theta=1000000.0,
             router_aux_loss_coef=0.001, shared_expert_intermediate_size=80, sliding_window=8, tie_word_embeddings=False,
             use_cache=True, use_sliding_window=False, vocab_size=128)
    c.update(k)
    return c


def gptneox_config(**k):
    c = dict(architectures=["GPTNeoXForCausalLM"], attention_bias=True, attention_dropout=0.0, bos_token_id=0,
             classifier_dropout=0.1, eos_token_id=0, hidden_act="gelu", hidden_dropout=0.0, hidden_size=48, initializer_range=0.02,
             intermediate_size=90, layer_norm_eps=1e-05, max_position_embeddings=64, model_type="gpt_neox", num_attention_heads=2,
             num_hidden_layers=4, rope_scaling=None, rotary_emb_base=10000, rotary_pct=0.25, tie_word_embeddings=False,
             use_cache=True, use_parallel_residual=True, vocab_size=113)
    c.update(k)
    return c


def gemma3_config(**k):
    c = dict(architectures=["Gemma3ForCausalLM"], attention_bias=False, attention_dropout=0.0, attn_logit_softcapping=None,
             bos_token_id=2, cache_implementation="hybrid", eos_token_id=1, final_logit_softcapping=None, head_dim=16,
             hidden_activation="gelu_pytorch_tanh", hidden_size=48, initializer_range=0.02, intermediate_size=80,
             max_position_embeddings=512, model_type="gemma3_text", num_attention_heads=4, num_hidden_layers=7,
             num_key_value_heads=1, pad_token_id=0, query_pre_attn_scalar=16, rms_norm_eps=1e-06, rope_local_base_freq=10000,
             rope_scaling=None, rope_theta=1000000, sliding_window=6, sliding_window_pattern=6, use_cache=True, vocab_size=128)
    c.update(k)
    return {key: v for key, v in c.items() if v != "absent"}


def gptoss_config(**k):
    c = dict(architectures=["GptOssForCausalLM"], attention_bias=True, attention_dropout=0.0, eos_token_id=2, head_dim=16,
             hidden_act="silu", hidden_size=64, initializer_range=0.02, intermediate_size=64, max_position_embeddings=131072,
             model_type="gpt_oss", num_attention_heads=8, num_experts_per_tok=4, num_hidden_layers=3, num_key_value_heads=2,
             num_local_experts=8, output_router_logits=False, pad_token_id=1,
             quantization_config=dict(modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                              "model.embed_tokens", "lm_head"], quant_method="mxfp4"),
             rms_norm_eps=1e-05, rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0,
                                                   original_max_position_embeddings=4096, rope_type="yarn", truncate=False),
             rope_theta=150000, router_aux_loss_coef=0.9, sliding_window=8, swiglu_limit=7.0, tie_word_embeddings=False,
             use_cache=True, vocab_size=128)
    c.update(k)
    c["experts_per_token"] = c["num_experts_per_tok"]
    c["initial_context_length"] = c["rope_scaling"]["original_max_position_embeddings"]
    c["layer_types"] = ["sliding_attention" if i % 2 == 0 else "full_attention" for i in range(c["num_hidden_layers"])]
    return c


SHORT_YARN = dict(beta_fast=8.0, beta_slow=1.0, factor=4.0, original_max_position_embeddings=128, rope_type="yarn", truncate=False)
SHORT_LLAMA3 = dict(factor=8.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=64, rope_type="llama3")
LINEAR8 = dict(factor=8.0, rope_type="linear")
EVERY_THIRD_GLOBAL = ["full_attention" if (i + 1) % 3 == 0 else "sliding_attention" for i in range(6)]

CASES = [  # name, family, stored type, config, options of the shapes
    ("gptoss-a-top4of8-realyarn", "gptoss", "bf16", gptoss_config(), {"try": 55}),
    ("gptoss-b-top3of5-shortyarn-3blocks", "gptoss", "bf16", gptoss_config(
        hidden_size=96, intermediate_size=160, head_dim=32, num_attention_heads=6, num_key_value_heads=3, num_local_experts=5,
        num_experts_per_tok=3, num_hidden_layers=4, max_position_embeddings=512, rope_scaling=SHORT_YARN, rope_theta=10000,
        sliding_window=5, swiglu_limit=5.0, vocab_size=203), {"try": 9}),
    ("gpt2-a-f32-release-names", "gpt2", "f32", gpt2_config(), {"mask_buffers": True}),
    ("gpt2-b-bf16-prefixed-ninner", "gpt2", "bf16", gpt2_config(n_embd=60, n_head=5, n_inner=77, n_layer=4, vocab_size=113),
     {"prefix": "transformer."}),
    ("llama-a-f32-gqa-untied", "llama", "f32", llama_config(), {"emb": 0.02}),  # small embeddings: the norm's epsilon shows
    ("llama-b-bf16-llama3rope-headdim-tied", "llama", "bf16", llama_config(
        hidden_size=80, num_attention_heads=6, num_key_value_heads=3, head_dim=16, intermediate_size=150, rope_theta=500000.0,
        rope_scaling=SHORT_LLAMA3, tie_word_embeddings=True, vocab_size=139), {"emb": 0.35}),
    ("mistral-a-bf16-sliding", "llama", "bf16", mistral_config(
        sliding_window=8, head_dim=12, num_attention_heads=4, hidden_size=56, intermediate_size=90), {}),
    ("qwen2moe-a-bf16-top2of4-shared", "moe", "bf16", qwen2moe_config(), {"try": 86}),
    ("qwen2moe-b-f32-mixed", "moe", "f32", qwen2moe_config(
        hidden_size=60, num_attention_heads=5, num_key_value_heads=1, num_hidden_layers=6, num_experts=5, num_experts_per_tok=3,
        norm_topk_prob=True, decoder_sparse_step=2, mlp_only_layers=[3], intermediate_size=77, moe_intermediate_size=33,
        shared_expert_intermediate_size=51, tie_word_embeddings=True, rope_theta=10000.0, vocab_size=109), {"emb": 0.35}),
    ("gptneox-a-f32-parallel-pct25", "gptneox", "f32", gptneox_config(), {"mask_buffers": True}),
    ("gptneox-b-bf16-sequential", "gptneox", "bf16", gptneox_config(
        use_parallel_residual=False, rotary_pct=1.0, hidden_size=80, num_attention_heads=5, num_hidden_layers=3,
        intermediate_size=130, vocab_size=139), {}),
    ("gemma3-a-bf16-pattern6", "gemma", "bf16", gemma3_config(), {}),
    ("gemma3-b-f32-scaled-odd", "gemma", "f32", gemma3_config(
        hidden_size=50, num_attention_heads=6, num_key_value_heads=2, head_dim=14, query_pre_attn_scalar=20, intermediate_size=75,
        num_hidden_layers=6, sliding_window=5, sliding_window_pattern="absent", layer_types=EVERY_THIRD_GLOBAL,
        rope_scaling=LINEAR8, rope_local_base_freq=5000, rope_theta=200000, tie_word_embeddings=False, vocab_size=117), {}),
    ("gemma3-c-bf16-scaled-gguf", "gemma", "bf16", gemma3_config(
        hidden_size=40, num_key_value_heads=2, intermediate_size=60, sliding_window=7, rope_scaling=LINEAR8, vocab_size=109), {}),
]

# Running a checkpoint, and choosing the seed: greedy tokens and experts must not hang on rounding.


def run_prompt(c, weights, prompt):
    """Greedy tokens, each from a full pass over all before it, then the passes that are recorded."""
    f32, f64 = reference.Params(weights, torch.float32), reference.Params(weights, torch.float64)
    ids, margins = list(prompt), []
    for _ in range(N_GREEDY):
        last = reference.forward(c, f32, ids)[-1]
        first, second = torch.topk(last, 2).values
        margins.append(float(first - second))
        ids.append(int(last.argmax()))
    trace = reference.Trace()
    logits = reference.forward(c, f32, ids, trace)
    rounding = float((logits.double() - reference.forward(c, f64, ids)).abs().max())
    return dict(prompt=prompt, ids=ids, margins=margins, logits=logits, trace=trace, rounding=rounding)


def router_gap(trace):
    """Smallest difference of router logits between neighbours in rank among the chosen and the first not chosen."""
    gap = 1e9
    for logits, chosen, _ in trace.router.values():
        k = chosen.shape[-1]
        ranked = torch.sort(logits, -1, descending=True).values
        gap = min(gap, float((ranked[:, :k] - ranked[:, 1:k + 1]).min()))
    return gap


def find_seed(name, family, dtype, c, options):
    """-> seed, tries, weights, runs. The first seed that is good enough, or the best of all tries. A pinned try was chosen by more:
    for gpt-oss by what the published code makes of it, for qwen2moe-a by experts that bf16 activations leave as they are."""
    lengths = (22, 3) if family == "gptoss" else (29, 3)
    best = None
    for attempt in [options["try"]] if "try" in options else range(150):
        seed = zlib.crc32(name.encode()) % 100000 + 100000 * attempt
        weights = make_weights(SHAPES[family](c, options), seed, dtype)
        prompts = [generator(seed, f"prompt{j}").integers(0, c["vocab_size"], n).tolist() for j, n in enumerate(lengths)]
        runs = [run_prompt(c, weights, prompt) for prompt in prompts]
        margin = min(min(r["margins"]) for r in runs)
        gap = min(router_gap(r["trace"]) if r["trace"].router else 9.0 for r in runs)
        distinct = min(len(set(r["ids"][len(r["prompt"]):])) for r in runs)
        good = margin > 0.02 and gap > 0.004 and distinct >= 4
        score = (-(20 if gap <= 0.003 else 0) - (20 if margin <= 0.03 else 0) - max(0, 4 - distinct), margin)
        if good or best is None or score > best[0]:
            best = (score, seed, attempt + 1, weights, runs)
        if good:
            break
    return best[1:]


def golden_tensors(run, prefix):
    trace = run["trace"]
    out = {"ids": torch.tensor(run["ids"], dtype=torch.int32), "logits": run["logits"], "final": trace.final}
    out.update({f"hidden.{i}": h for i, h in enumerate(trace.hidden)})
    out.update({f"mid.{i}": h for i, h in enumerate(trace.mid)})
    for i, (logits, chosen, weights) in trace.router.items():
        out.update({f"router.{i}.logits": logits, f"router.{i}.experts": chosen.to(torch.int32), f"router.{i}.weights": weights})
    return {prefix + name: t.contiguous() for name, t in out.items()}


def golden_facts(run):
    trace, logits, n = run["trace"], run["logits"], len(run["prompt"])
    values, tokens = torch.topk(logits[n - 1], 5)
    facts = dict(prompt=run["prompt"], greedy=run["ids"][n:], greedy_margins=[round(m, 5) for m in run["margins"]],
                 last_prompt_logits_top5=[[int(a), round(float(b), 6)] for a, b in zip(tokens, values)],
                 logits_std=round(float(logits.std()), 4), logits_max_abs=round(float(logits.abs().max()), 4),
                 f32_vs_f64_max_abs=run["rounding"],
                 hidden_checksums=[dict(mean=float(h.double().mean()), rms=float(h.double().pow(2).mean().sqrt()),
                                        first4_last_pos=[round(float(v), 6) for v in h[-1, :4]]) for h in trace.hidden],
                 notes={k: list(v) if isinstance(v, tuple) else v for k, v in trace.notes.items()})
    if trace.router:
        facts["router_min_gap"] = router_gap(trace)
        facts["experts_of_last_prompt_token"] = {
            str(i): [chosen[n - 1].tolist(), [round(float(a), 6) for a in weights[n - 1]]]
            for i, (_, chosen, weights) in trace.router.items()}
    return facts


def write_json(path, value, indent):
    with open(path, "w") as f:
        json.dump(value, f, indent=indent)
        f.write("\n")


def build(case, out):
    name, family, dtype, c, options = case
    if family != "gptoss":
        c = dict(c, torch_dtype=DTYPE_NAMES[dtype], transformers_version="4.55.0")
    seed, tries, weights, runs = find_seed(name, family, dtype, c, options)
    directory = os.path.join(out, family, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    write_json(directory + "/config.json", dict(sorted(c.items())), 2)
    write_safetensors(directory + "/model.safetensors", weights, {"format": "pt"})
    tensors = {}
    for j, run in enumerate(runs):
        tensors.update(golden_tensors(run, f"p{j}."))
    write_safetensors(directory + "/golden.safetensors", tensors, {"case": name})
    facts = [golden_facts(run) for run in runs]
    hashes = {}
    for file in ("config.json", "model.safetensors", "golden.safetensors"):
        with open(f"{directory}/{file}", "rb") as f:
            hashes[file] = hashlib.sha256(f.read()).hexdigest()
    write_json(directory + "/golden.json", dict(
        case=name, family=family, seed=seed, attempts=tries, weights_dtype=dtype, oracle="clean-room torch f32",
        policy="weights widened exactly to f32, f32 activations and KV, eos ignored, greedy = argmax; "
               "logits/hidden cover prompt+greedy tokens (teacher forced)",
        suggested_logits_atol=max(2e-4, 40 * max(r["rounding"] for r in runs)),
        n_params=sum(t.numel() * (2 if k.endswith("_blocks") else 1) for k, t in weights.items()), prompts=facts, files=hashes), 1)
    print(f"{name:42} tries {tries:3}  smallest margin {min(min(r['margins']) for r in runs):.4f}  "
          f"router gap {min(router_gap(r['trace']) for r in runs):.4f}  f32 against f64 {max(r['rounding'] for r in runs):.1e}",
          flush=True)


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # one order of sums
    for case in CASES:
        if len(sys.argv) < 3 or sys.argv[2] in case[0]:
            build(case, sys.argv[1])


if __name__ == "__main__":
    main()
