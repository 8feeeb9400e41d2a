#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden cases of the classic families: random checkpoints, and what classic_reference.py computes for them.

usage: make_classic.py OUT_DIR [CASE_SUBSTRING]        then check_classic.py
needs: python3-torch and python3-numpy of Debian 12 (torch 1.13)

Writes OUT_DIR/FAMILY/CASE/{config.json, model.safetensors, golden.json, golden.safetensors} as make_goldens.py does, of the outputs
pJ.ids and pJ.logits only, and model.gguf where classic_gguf.py can say all of the config.
"""

import hashlib
import math
import os
import shutil
import sys

import torch

import classic_gguf
import classic_reference
import make_goldens
import reference
from checkpoint_io import write_safetensors
from make_goldens import DTYPE_NAMES, NORM, causal_mask, find_seed, golden_facts, write_json

# Random weights: (name, shape, distribution) as in make_goldens.py. The sizes make scores spread and logits reach 5 to 12.


def matrix(name, out, n, bias=0.0, gain=1.6):
    yield name + ".weight", (out, n), ("n", gain / math.sqrt(n))
    if bias:
        yield name + ".bias", (out,), ("n", bias)


def norm(name, width, bias=0.25):
    yield name + ".weight", (width,), NORM
    if bias:
        yield name + ".bias", (width,), ("n", bias)


def tied_embedding(name, rows, width):
    return name + ".weight", (rows, width), ("n", 2.6 / math.sqrt(width))


def opt_shapes(c, o):
    width, inner, bias, root = c["hidden_size"], c["ffn_dim"], 0.3 * c["enable_bias"], o.get("prefix", "model.decoder.")
    small, affine = c["word_embed_proj_dim"], c.get("layer_norm_elementwise_affine", True)
    yield tied_embedding(root + "embed_tokens", c["vocab_size"], small)
    yield root + "embed_positions.weight", (c["max_position_embeddings"] + 2, width), ("n", 0.5)
    if small != width:
        yield from matrix(root + "project_in", width, small, gain=1.0)
        yield from matrix(root + "project_out", small, width, gain=1.0)
    for i in range(c["num_hidden_layers"]):
        b = f"{root}layers.{i}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from matrix(f"{b}self_attn.{name}", width, width, bias)
        yield from matrix(b + "fc1", inner, width, bias)
        yield from matrix(b + "fc2", width, inner, bias)
        for name in ("self_attn_layer_norm", "final_layer_norm") if affine else ():
            yield from norm(b + name, width)
    if c["do_layer_norm_before"] and affine:
        yield from norm(root + "final_layer_norm", width)


def bloom_shapes(c, o):
    width, root = classic_reference.bloom_sizes(c)[1], o.get("prefix", "transformer.")
    yield tied_embedding(root + "word_embeddings", c["vocab_size"], width)
    yield from norm(root + "word_embeddings_layernorm", width)
    for i in range(c["n_layer"]):
        b = f"{root}h.{i}."
        yield from norm(b + "input_layernorm", width)
        yield from matrix(b + "self_attention.query_key_value", 3 * width, width, 0.4)
        yield from matrix(b + "self_attention.dense", width, width, 0.3)
        yield from norm(b + "post_attention_layernorm", width)
        yield from matrix(b + "mlp.dense_h_to_4h", 4 * width, width, 0.3)
        yield from matrix(b + "mlp.dense_4h_to_h", width, 4 * width, 0.3)
    yield from norm(root + "ln_f", width)


def mpt_shapes(c, o):
    width = c["d_model"]
    yield tied_embedding("transformer.wte", c["vocab_size"], width)
    for i in range(c["n_layers"]):
        b = f"transformer.blocks.{i}."
        yield from norm(b + "norm_1", width, 0)
        yield from matrix(b + "attn.Wqkv", 3 * width, width)
        yield from matrix(b + "attn.out_proj", width, width)
        yield from norm(b + "norm_2", width, 0)
        yield from matrix(b + "ffn.up_proj", 4 * width, width)
        yield from matrix(b + "ffn.down_proj", width, 4 * width)
    yield from norm("transformer.norm_f", width, 0)


def mask_buffers(b, positions, window=None):
    """Buffers of published files: the mask, and what hides a score."""
    mask = causal_mask(positions)
    if window is not None:
        mask = mask - torch.tril(mask, -window)
    yield b + "bias", None, ("is", mask.to(torch.uint8))
    yield b + "masked_bias", None, ("is", torch.tensor(-1e9))


def gptj_shapes(c, o):
    width, inner = c["n_embd"], c["n_inner"] or 4 * c["n_embd"]
    yield "transformer.wte.weight", (c["vocab_size"], width), ("n", 1.0)
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        if o.get("mask_buffers"):
            yield from mask_buffers(b + "attn.", c["n_positions"])
        yield from norm(b + "ln_1", width)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from matrix(f"{b}attn.{name}", width, width)
        yield from matrix(b + "mlp.fc_in", inner, width, 0.3)
        yield from matrix(b + "mlp.fc_out", width, inner, 0.3)
    yield from norm("transformer.ln_f", width)
    yield from matrix("lm_head", c["vocab_size"], width, 0.5, gain=2.6)


def gptneo_shapes(c, o):
    width, inner = c["hidden_size"], c["intermediate_size"] or 4 * c["hidden_size"]
    yield tied_embedding("transformer.wte", c["vocab_size"], width)
    yield "transformer.wpe.weight", (c["max_position_embeddings"], width), ("n", 0.5)
    for i, kind in enumerate(classic_reference.gptneo_layer_types(c)):
        b = f"transformer.h.{i}."
        if o.get("mask_buffers"):
            window = c["window_size"] if kind == "local" else None
            yield from mask_buffers(b + "attn.attention.", c["max_position_embeddings"], window)
        yield from norm(b + "ln_1", width)
        for name in "qkv":  # scores are not scaled: smaller q and k
            yield from matrix(f"{b}attn.attention.{name}_proj", width, width, gain=1.6 if name == "v" else 0.9)
        yield from matrix(b + "attn.attention.out_proj", width, width, 0.3)
        yield from norm(b + "ln_2", width)
        yield from matrix(b + "mlp.c_fc", inner, width, 0.3)
        yield from matrix(b + "mlp.c_proj", width, inner, 0.3)
    yield from norm("transformer.ln_f", width)


def falcon_shapes(c, o):
    width, heads, bias = c["hidden_size"], c["num_attention_heads"], 0.3 * c["bias"]
    inner, new = c.get("ffn_hidden_size") or 4 * width, c["new_decoder_architecture"]
    kv_heads = c["num_kv_heads"] if new else 1 if c["multi_query"] else heads
    yield tied_embedding("transformer.word_embeddings", c["vocab_size"], width)
    for i in range(c["num_hidden_layers"]):
        b = f"transformer.h.{i}."
        names = ["input_layernorm"] if c["parallel_attn"] else ["input_layernorm", "post_attention_layernorm"]
        for name in ("ln_attn", "ln_mlp") if new and c.get("num_ln_in_parallel_attn") != 1 else names:
            yield from norm(b + name, width)
        yield from matrix(b + "self_attention.query_key_value", (heads + 2 * kv_heads) * width // heads, width, bias)
        yield from matrix(b + "self_attention.dense", width, width, bias)
        yield from matrix(b + "mlp.dense_h_to_4h", inner, width, bias)
        yield from matrix(b + "mlp.dense_4h_to_h", width, inner, bias)
    yield from norm("transformer.ln_f", width)


def gptbigcode_shapes(c, o):
    width, inner = c["n_embd"], c["n_inner"] or 4 * c["n_embd"]
    kv = width // c["n_head"] if c["multi_query"] else width
    yield tied_embedding("transformer.wte", c["vocab_size"], width)
    yield "transformer.wpe.weight", (c["n_positions"], width), ("n", 0.5)
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        yield from norm(b + "ln_1", width)
        yield from matrix(b + "attn.c_attn", width + 2 * kv, width, 0.4)
        yield from matrix(b + "attn.c_proj", width, width, 0.3)
        yield from norm(b + "ln_2", width)
        yield from matrix(b + "mlp.c_fc", inner, width, 0.3)
        yield from matrix(b + "mlp.c_proj", width, inner, 0.3)
    yield from norm("transformer.ln_f", width)


def projections(c, b, bias, out="o_proj", d=None):
    """q_proj, k_proj, v_proj and the output matrix."""
    width, heads = c["hidden_size"], c["num_attention_heads"]
    d, kv_heads = d or width // heads, c.get("num_key_value_heads") or heads
    for name, rows, n in (("q_proj", heads * d, width), ("k_proj", kv_heads * d, width), ("v_proj", kv_heads * d, width),
                          (out, width, heads * d)):
        yield from matrix(b + name, rows, n, bias)


def starcoder2_shapes(c, o):
    width, inner, bias = c["hidden_size"], c["intermediate_size"], 0.3 * c["use_bias"]
    yield tied_embedding("model.embed_tokens", c["vocab_size"], width)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield from norm(b + "input_layernorm", width)
        yield from projections(c, b + "self_attn.", bias)
        yield from norm(b + "post_attention_layernorm", width)
        yield from matrix(b + "mlp.c_fc", inner, width, bias)
        yield from matrix(b + "mlp.c_proj", width, inner, bias)
    yield from norm("model.norm", width)
    if not c["tie_word_embeddings"]:
        yield from matrix("lm_head", c["vocab_size"], width, gain=2.6)


def phi_shapes(c, o):
    width, inner, d = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["num_attention_heads"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width), ("n", 1.0)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield from norm(b + "input_layernorm", width)
        yield from projections(c, b + "self_attn.", 0.3, "dense")
        for name in ("q_layernorm", "k_layernorm") if c["qk_layernorm"] else ():
            yield from norm(b + "self_attn." + name, d)
        yield from matrix(b + "mlp.fc1", inner, width, 0.3)
        yield from matrix(b + "mlp.fc2", width, inner, 0.3)
    yield from norm("model.final_layernorm", width)
    yield from matrix("lm_head", c["vocab_size"], width, 0.5, gain=2.6)


def phi3_shapes(c, o):
    width, inner, heads, kv_heads = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    yield tied_embedding("model.embed_tokens", c["vocab_size"], width)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield from norm(b + "input_layernorm", width, 0)
        yield from matrix(b + "self_attn.qkv_proj", (heads + 2 * kv_heads) * width // heads, width)
        yield from matrix(b + "self_attn.o_proj", width, width)
        yield from norm(b + "post_attention_layernorm", width, 0)
        yield from matrix(b + "mlp.gate_up_proj", 2 * inner, width)
        yield from matrix(b + "mlp.down_proj", width, inner)
    yield from norm("model.norm", width, 0)
    if not c["tie_word_embeddings"]:
        yield from matrix("lm_head", c["vocab_size"], width, gain=2.6)


def gated_shapes(b, inner, width, names=("gate_proj", "up_proj", "down_proj")):
    for name, out, n in zip(names, (inner, inner, width), (width, width, inner)):
        yield from matrix(b + name, out, n)


def gemma_shapes(c, o):
    width = c["hidden_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width), ("n", 0.5 / math.sqrt(width))
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{b}{name}.weight", (width,), ("n", 0.4)  # stored as w, applied as 1 + w
        yield from projections(c, b + "self_attn.", 0, d=c["head_dim"])
        yield from gated_shapes(b + "mlp.", c["intermediate_size"], width)
    yield "model.norm.weight", (width,), ("gnorm", 4.0, 0.6)


def internlm2_shapes(c, o):
    width, heads, kv_heads, bias = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], 0.3 * c["bias"]
    yield "model.tok_embeddings.weight", (c["vocab_size"], width), ("n", 1.0)
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield from norm(b + "attention_norm", width, 0)
        yield from matrix(b + "attention.wqkv", (heads + 2 * kv_heads) * width // heads, width, bias)
        yield from matrix(b + "attention.wo", width, width, bias)
        yield from norm(b + "ffn_norm", width, 0)
        yield from gated_shapes(b + "feed_forward.", c["intermediate_size"], width, ("w1", "w3", "w2"))
    yield from norm("model.norm", width, 0)
    yield from matrix("output", c["vocab_size"], width, gain=2.6)


def minicpm_shapes(c, o):
    width = c["hidden_size"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width), ("n", 1.0 / c["scale_emb"])
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        yield from norm(b + "input_layernorm", width, 0)
        yield from projections(c, b + "self_attn.", 0)
        yield from norm(b + "post_attention_layernorm", width, 0)
        yield from gated_shapes(b + "mlp.", c["intermediate_size"], width)
    narrowing, embedding = width / c["dim_model_base"], math.sqrt(width) / c["scale_emb"]
    if c["tie_word_embeddings"]:
        yield "model.norm.weight", (width,), ("norm", 2.6 * narrowing / embedding)
    else:
        yield from norm("model.norm", width, 0)
        yield from matrix("lm_head", c["vocab_size"], width, gain=2.6 * narrowing)


def mini_gpt_shapes(c, o):
    width, inner = c["n_embd"], c["n_inner"]
    yield tied_embedding("transformer.wte", c["vocab_size"], width)
    for i in range(c["n_layer"]):
        b = f"transformer.h.{i}."
        yield from norm(b + "ln_1", width)
        yield from matrix(b + "attn.c_attn", 3 * width, width)
        yield from matrix(b + "attn.c_proj", width, width)
        yield from norm(b + "ln_2", width)
        yield from matrix(b + "mlp.c_fc", inner, width, 0.3)
        yield from matrix(b + "mlp.c_proj", width, inner, 0.3)
    yield from norm("transformer.ln_f", width)


SHAPES = {"opt": opt_shapes, "bloom": bloom_shapes, "mpt": mpt_shapes, "gptj": gptj_shapes, "gpt_neo": gptneo_shapes,
          "falcon": falcon_shapes, "gpt_bigcode": gptbigcode_shapes, "starcoder2": starcoder2_shapes, "phi": phi_shapes,
          "phi3": phi3_shapes, "gemma": gemma_shapes, "internlm2": internlm2_shapes, "minicpm": minicpm_shapes,
          "mini-gpt": mini_gpt_shapes}

# Configs, with the keys that published ones have. "absent" removes a key.


def config(base, k):
    return {key: v for key, v in {**base, **k}.items() if v != "absent"}


def opt_config(**k):
    return config(dict(_remove_final_layer_norm=False, activation_function="relu", architectures=["OPTForCausalLM"],
                       attention_dropout=0.0, bos_token_id=2, do_layer_norm_before=True, dropout=0.1, enable_bias=True,
                       eos_token_id=2, ffn_dim=88, hidden_size=32, init_std=0.02, layer_norm_elementwise_affine=True,
                       layerdrop=0.0, max_position_embeddings=64, model_type="opt", num_attention_heads=4, num_hidden_layers=2,
                       pad_token_id=1, prefix="</s>", use_cache=True, vocab_size=61, word_embed_proj_dim=32), k)


def bloom_config(**k):
    return config(dict(apply_residual_connection_post_layernorm=False, architectures=["BloomForCausalLM"], attention_dropout=0.0,
                       bos_token_id=1, eos_token_id=2, hidden_dropout=0.0, hidden_size=24, initializer_range=0.02,
                       layer_norm_epsilon=1e-05, model_type="bloom", n_head=4, n_inner=None, n_layer=2, pad_token_id=3,
                       pretraining_tp=1, seq_length=64, slow_but_exact=False, use_cache=True, vocab_size=61), k)


def mpt_config(**k):
    options = dict(alibi=True, alibi_bias_max=8, attn_impl="torch", attn_pdrop=0, attn_type="multihead_attention",
                   attn_uses_sequence_id=False, clip_qkv=None, prefix_lm=False, qk_ln=False, softmax_scale=None)
    options.update(k.pop("attn_config", {}))
    return config(dict(architectures=["MPTForCausalLM"], attn_config=options, d_model=24, emb_pdrop=0, embedding_fraction=1.0,
                       expansion_ratio=4, init_device="cpu", learned_pos_emb=True, logit_scale=None, max_seq_len=64,
                       model_type="mpt", n_heads=4, n_layers=2, no_bias=True, norm_type="low_precision_layernorm", resid_pdrop=0,
                       use_cache=False, verbose=0, vocab_size=67), k)


def gptj_config(**k):
    return config(dict(activation_function="gelu_new", architectures=["GPTJForCausalLM"], attn_pdrop=0.0, bos_token_id=0,
                       embd_pdrop=0.0, eos_token_id=0, initializer_range=0.02, layer_norm_epsilon=1e-05, model_type="gptj",
                       n_embd=32, n_head=4, n_inner=72, n_layer=2, n_positions=64, resid_pdrop=0.0, rotary=True, rotary_dim=4,
                       scale_attn_weights=True, tie_word_embeddings=False, use_cache=True, vocab_size=61), k)


def gptneo_config(**k):
    c = dict(activation_function="gelu_new", architectures=["GPTNeoForCausalLM"], attention_dropout=0,
             attention_types=[[["global", "local"], 2]], bos_token_id=0, embed_dropout=0, eos_token_id=0, hidden_size=24,
             initializer_range=0.02, intermediate_size=72, layer_norm_epsilon=1e-05, max_position_embeddings=64,
             model_type="gpt_neo", num_heads=4, num_layers=4, resid_dropout=0, use_cache=True, vocab_size=61, window_size=5)
    c = config(c, k)
    return dict(c, attention_layers=classic_reference.gptneo_layer_types(c))


def falcon_config(**k):
    return config(dict(alibi=False, apply_residual_connection_post_layernorm=False, architectures=["FalconForCausalLM"],
                       attention_dropout=0.0, bias=False, bos_token_id=11, eos_token_id=11, hidden_dropout=0.0, hidden_size=40,
                       initializer_range=0.02, layer_norm_epsilon=1e-05, model_type="falcon", multi_query=True,
                       new_decoder_architecture=False, num_attention_heads=5, num_hidden_layers=2, num_kv_heads=5,
                       parallel_attn=True, use_cache=True, vocab_size=73), k)


def gptbigcode_config(**k):
    return config(dict(activation_function="gelu", architectures=["GPTBigCodeForCausalLM"], attention_softmax_in_fp32=True,
                       attn_pdrop=0.1, bos_token_id=0, embd_pdrop=0.1, eos_token_id=0, initializer_range=0.02,
                       layer_norm_epsilon=1e-05, model_type="gpt_bigcode", multi_query=True, n_embd=40, n_head=5, n_inner=160,
                       n_layer=2, n_positions=64, resid_pdrop=0.1, scale_attention_softmax_in_fp32=True, scale_attn_weights=True,
                       use_cache=True, vocab_size=71), k)


def starcoder2_config(**k):
    return config(dict(architectures=["Starcoder2ForCausalLM"], attention_dropout=0.1, bos_token_id=0, embedding_dropout=0.1,
                       eos_token_id=0, hidden_act="gelu_pytorch_tanh", hidden_size=40, initializer_range=0.02,
                       intermediate_size=104, max_position_embeddings=64, mlp_type="default", model_type="starcoder2",
                       norm_epsilon=1e-05, norm_type="layer_norm", num_attention_heads=4, num_hidden_layers=2,
                       num_key_value_heads=2, residual_dropout=0.1, rope_theta=100000, sliding_window=64,
                       tie_word_embeddings=True, use_bias=True, use_cache=True, vocab_size=71), k)


def phi_config(**k):
    return config(dict(architectures=["PhiForCausalLM"], attention_dropout=0.0, bos_token_id=None, embd_pdrop=0.0,
                       eos_token_id=None, hidden_act="gelu_new", hidden_size=32, initializer_range=0.02, intermediate_size=128,
                       layer_norm_eps=1e-05, max_position_embeddings=64, model_type="phi", num_attention_heads=4,
                       num_hidden_layers=2, num_key_value_heads=None, partial_rotary_factor=0.5, qk_layernorm=False,
                       resid_pdrop=0.0, rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False, use_cache=True,
                       vocab_size=73), k)


def phi3_config(**k):
    return config(dict(architectures=["Phi3ForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=1,
                       embd_pdrop=0.0, eos_token_id=2, hidden_act="silu", hidden_size=40, initializer_range=0.02,
                       intermediate_size=72, max_position_embeddings=64, model_type="phi3", num_attention_heads=4,
                       num_hidden_layers=2, num_key_value_heads=2, original_max_position_embeddings=64, pad_token_id=0,
                       resid_pdrop=0.0, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000.0, sliding_window=6,
                       tie_word_embeddings=False, use_cache=True, vocab_size=73), k)


def gemma_config(**k):
    return config(dict(architectures=["GemmaForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=2,
                       eos_token_id=1, head_dim=12, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
                       hidden_size=40, initializer_range=0.02, intermediate_size=96, max_position_embeddings=64,
                       model_type="gemma", num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=1, pad_token_id=0,
                       rms_norm_eps=1e-06, rope_scaling=None, rope_theta=10000.0, use_cache=True, vocab_size=73), k)


def internlm2_config(**k):
    return config(dict(architectures=["InternLM2ForCausalLM"], attn_implementation="eager", bias=False, bos_token_id=1,
                       eos_token_id=2, hidden_act="silu", hidden_size=32, initializer_range=0.02, intermediate_size=44,
                       max_position_embeddings=512, model_type="internlm2", num_attention_heads=4, num_hidden_layers=2,
                       num_key_value_heads=2, pad_token_id=2, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=1000000,
                       tie_word_embeddings=False, use_cache=True, vocab_size=61), k)


def minicpm_config(**k):
    return config(dict(architectures=["MiniCPMForCausalLM"], attention_bias=False, attention_dropout=0.0, bos_token_id=1,
                       dim_model_base=12, eos_token_id=2, hidden_act="silu", hidden_size=36, initializer_range=0.1,
                       intermediate_size=72, max_position_embeddings=64, model_type="minicpm", num_attention_heads=3,
                       num_hidden_layers=2, num_key_value_heads=3, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000.0,
                       scale_depth=1.9, scale_emb=6.5, tie_word_embeddings=True, use_cache=True, vocab_size=73), k)


def mini_gpt_config(**k):
    return config(dict(activation_function="gelu", layer_norm_epsilon=1e-05, model_type="mini-gpt", n_embd=32, n_head=4,
                       n_inner=120, n_layer=2, n_positions=64, rope_theta=10000.0, vocab_size=61), k)


def long_factors(n, longest, shortest=1.0):
    """Divisors that grow from the first pair to the last, three decimals."""
    return [round(shortest * (longest / shortest) ** ((i + 1) / n), 3) for i in range(n)]


CASES = [  # name, family, stored type, config, options of the shapes
    ("opt-a-f32-relu", "opt", "f32", opt_config(), {}),
    ("opt-b-bf16-gelu-nobias", "opt", "bf16", opt_config(
        activation_function="gelu", enable_bias=False, hidden_size=40, word_embed_proj_dim=40, num_attention_heads=5, ffn_dim=100,
        num_hidden_layers=3, vocab_size=71), {"prefix": "decoder."}),
    ("opt-c-f32-stream-norms-narrow", "opt", "f32", opt_config(
        do_layer_norm_before=False, enable_bias=True, hidden_size=48, word_embed_proj_dim=20, num_attention_heads=6, ffn_dim=72,
        num_hidden_layers=3, vocab_size=67), {}),
    ("bloom-a-f32-4heads", "bloom", "f32", bloom_config(
        hidden_size="absent", n_embed=24, n_head="absent", num_attention_heads=4), {"prefix": ""}),
    ("bloom-b-bf16-6heads", "bloom", "bf16", bloom_config(hidden_size=36, n_head=6, vocab_size=79), {}),
    ("mpt-a-f32-4heads", "mpt", "f32", mpt_config(), {}),
    ("mpt-b-bf16-6heads-max16", "mpt", "bf16", mpt_config(
        d_model=36, n_heads=6, attn_config=dict(alibi_bias_max=16), architectures=["MptForCausalLM"], vocab_size=83), {}),
    ("gptj-a-f32-rotary4-buffers", "gptj", "f32", gptj_config(), {"mask_buffers": True}),
    ("gptj-b-bf16-rotary6", "gptj", "bf16", gptj_config(
        n_embd=40, n_inner=None, rotary_dim=6, n_head=4, vocab_size=71), {}),
    ("gptneo-a-f32-window5-buffers", "gptneo", "f32", gptneo_config(), {"mask_buffers": True}),
    ("gptneo-b-bf16-window3", "gptneo", "bf16", gptneo_config(
        attention_types=[[["global"], 1], [["local", "local"], 1]], hidden_size=30, num_heads=3, num_layers=3,
        intermediate_size=None, window_size=3, vocab_size=71), {"copies": {"lm_head.weight": "transformer.wte.weight"}}),
    ("falcon-a-bf16-multiquery", "falcon", "bf16", falcon_config(),
     {"copies": {"lm_head.weight": "transformer.word_embeddings.weight"}}),
    ("falcon-b-bf16-grouped-2norms", "falcon", "bf16", falcon_config(
        hidden_size=36, num_attention_heads=6, num_kv_heads=2, new_decoder_architecture=True, vocab_size=79), {}),
    ("falcon-c-f32-sequential-bias", "falcon", "f32", falcon_config(
        hidden_size=32, num_attention_heads=4, num_kv_heads=4, multi_query=False, parallel_attn=False, bias=True,
        ffn_hidden_size=88, rope_theta=20000.0, max_position_embeddings=64, vocab_size=61), {}),
    ("falcon-d-f32-grouped-1norm", "falcon", "f32", falcon_config(
        hidden_size=24, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True, num_ln_in_parallel_attn=1,
        activation="gelu", ffn_hidden_size=96, max_position_embeddings=64, rope_theta=10000.0, vocab_size=61), {}),
    ("gptbigcode-a-bf16-multiquery", "gptbigcode", "bf16", gptbigcode_config(), {}),
    ("gptbigcode-b-f32-multihead", "gptbigcode", "f32", gptbigcode_config(
        multi_query=False, n_embd=32, n_head=4, n_inner=72, activation_function="gelu_pytorch_tanh", vocab_size=61), {}),
    ("starcoder2-a-bf16-bias", "starcoder2", "bf16", starcoder2_config(), {}),
    ("starcoder2-b-f32-window-nobias", "starcoder2", "f32", starcoder2_config(
        sliding_window=5, use_bias=False, tie_word_embeddings=False, hidden_size=32, num_key_value_heads=1, intermediate_size=76,
        vocab_size=61), {}),
    ("phi-a-bf16-pct50", "phi", "bf16", phi_config(), {}),
    ("phi-b-f32-pct40", "phi", "f32", phi_config(
        partial_rotary_factor=0.4, hidden_size=24, intermediate_size=96, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=61), {}),
    ("phi3-a-bf16-window", "phi3", "bf16", phi3_config(), {}),
    ("phi3-b-f32-longrope19-pct75", "phi3", "f32", phi3_config(
        hidden_size=32, num_attention_heads=2, num_key_value_heads=1, intermediate_size=48, partial_rotary_factor=0.75,
        sliding_window=512, max_position_embeddings=76, original_max_position_embeddings=19, tie_word_embeddings=True,
        rope_scaling=dict(long_factor=long_factors(6, 9.0, 1.2), short_factor=long_factors(6, 1.7), type="longrope"),
        vocab_size=61), {}),
    ("phi3-c-bf16-longrope64", "phi3", "bf16", phi3_config(
        hidden_size=36, num_attention_heads=3, num_key_value_heads=3, intermediate_size=60, sliding_window=None,
        max_position_embeddings=256, original_max_position_embeddings=64,
        rope_scaling=dict(long_factor=long_factors(6, 12.0, 1.1), short_factor=long_factors(6, 1.5), type="su")), {}),
    ("gemma-a-bf16-multiquery", "gemma", "bf16", gemma_config(), {}),
    ("gemma-b-f32-multihead-oldact", "gemma", "f32", gemma_config(
        hidden_act="gelu", hidden_activation=None, hidden_size=24, num_attention_heads=3, num_key_value_heads=3, head_dim=10,
        intermediate_size=60, vocab_size=61), {}),
    ("internlm2-a-f32-grouped", "internlm2", "f32", internlm2_config(), {}),
    ("internlm2-b-bf16-bias-dynamic", "internlm2", "bf16", internlm2_config(
        bias=True, hidden_size=36, num_attention_heads=6, num_key_value_heads=2, intermediate_size=64, num_hidden_layers=3,
        rope_scaling=dict(factor=2.0, type="dynamic"), vocab_size=73), {}),
    ("minicpm-a-bf16-tied", "minicpm", "bf16", minicpm_config(), {}),
    ("minicpm-b-f32-grouped-untied", "minicpm", "f32", minicpm_config(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, dim_model_base=20, scale_emb=3,
        scale_depth=1.1, tie_word_embeddings=False, vocab_size=61), {}),
    ("minicpm-c-bf16-longrope64", "minicpm", "bf16", minicpm_config(
        num_key_value_heads=1, dim_model_base=18, rope_scaling=dict(
            long_factor=long_factors(6, 8.0, 1.1), original_max_position_embeddings=64, rope_type="longrope",
            short_factor=long_factors(6, 1.6))), {}),
    ("mini-gpt-a-f32", "mini-gpt", "f32", mini_gpt_config(), {}),
]


def register():
    """The helpers of make_goldens.py look up models and shapes by name."""
    make_goldens.SHAPES.update(SHAPES)
    for kind, forward in classic_reference.FORWARD.items():
        reference.FORWARD[kind] = lambda c, p, ids, trace, forward=forward: forward(c, p, ids)


def build(case, out):
    name, family, dtype, c, options = case
    if c["model_type"] != "mini-gpt":  # a schema of the project's own
        c = dict(c, torch_dtype=DTYPE_NAMES[dtype], transformers_version="4.55.0")
    seed, tries, weights, runs = find_seed(name, c["model_type"], dtype, c, options)
    for copy, original in options.get("copies", {}).items():
        weights[copy] = weights[original]
    directory = os.path.join(out, family, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    write_json(directory + "/config.json", dict(sorted(c.items())), 2)
    write_safetensors(directory + "/model.safetensors", weights, {"format": "pt"})
    tensors = {}
    for j, run in enumerate(runs):
        tensors[f"p{j}.ids"] = torch.tensor(run["ids"], dtype=torch.int32)
        tensors[f"p{j}.logits"] = run["logits"].contiguous()
    write_safetensors(directory + "/golden.safetensors", tensors, {"case": name})
    hashes = {}
    for file in ("config.json", "model.safetensors", "golden.safetensors"):
        with open(f"{directory}/{file}", "rb") as f:
            hashes[file] = hashlib.sha256(f.read()).hexdigest()
    write_json(directory + "/golden.json", dict(
        case=name, family=family, seed=seed, attempts=tries, weights_dtype=dtype, oracle="clean-room torch f32",
        policy="weights widened exactly to f32, f32 activations and KV, eos ignored, greedy = argmax; "
               "logits cover prompt+greedy tokens (teacher forced)",
        suggested_logits_atol=max(2e-4, 40 * max(r["rounding"] for r in runs)),
        n_params=sum(t.numel() for t in weights.values()), prompts=[golden_facts(run) for run in runs], files=hashes), 1)
    reason = classic_gguf.inexpressible(c)
    if reason is None:
        classic_gguf.convert(c, weights, directory + "/model.gguf")
    size = sum(os.path.getsize(f"{directory}/{file}") for file in os.listdir(directory))
    print(f"{name:34} tries {tries:3}  {size / 1024:4.0f} KiB  smallest margin {min(min(r['margins']) for r in runs):.4f}  "
          f"max |logit| {max(float(r['logits'].abs().max()) for r in runs):4.1f}  "
          f"f32 against f64 {max(r['rounding'] for r in runs):.1e}  GGUF: {reason or 'yes'}", flush=True)


def main():
    if not 2 <= len(sys.argv) <= 3:
        sys.exit(__doc__)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)  # one order of sums
    register()
    for case in CASES:
        if len(sys.argv) < 3 or sys.argv[2] in case[0]:
            build(case, sys.argv[1])


if __name__ == "__main__":
    main()
