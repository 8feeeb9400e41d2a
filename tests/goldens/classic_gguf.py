#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a golden case of the classic families as GGUF by llama.cpp's conventions, or says why GGUF cannot hold it.

usage: classic_gguf.py CASE_DIR OUT.gguf      exit code 3: the config has no equivalent in GGUF (the reason is printed)
needs: python3-torch and python3-numpy

Keys and names are those of llama.cpp's converter. Stored types are kept; one-dimensional tensors and learned positions are F32. No
vocabulary. GGUF has no key for the form of GELU: a file means the one that published checkpoints of its architecture have.
"""

import math
import sys

import torch

from checkpoint_io import STRING, GgufWriter, read_checkpoint
from classic_reference import bloom_sizes
from make_gguf import permute

NO_ARCHITECTURE = ("opt", "gptj", "gpt_neo", "mini-gpt")


def other_width(c, inner, width):
    return None if c.get(inner) in (None, 4 * c[width]) else f"{inner} is not 4 {width}"


def inexpressible(c):
    """Why llama.cpp's conventions cannot hold this config; None: they can."""
    return of_family(c) or of_rope(c)


def of_rope(c):
    if c["model_type"] in ("falcon", "phi", "gemma") and c.get("rope_theta", 10000) != 10000:
        return "rope_theta is not 10000"
    return "rope_scaling" if c["model_type"] not in ("phi3", "minicpm") and c.get("rope_scaling") else None


def of_family(c):
    kind, scaling = c["model_type"], c.get("rope_scaling") or {}
    if kind in NO_ARCHITECTURE:
        return "no architecture"
    if kind == "bloom":
        return "residual after the norms" if c["apply_residual_connection_post_layernorm"] else None
    if kind == "mpt":
        return "softmax_scale" if c["attn_config"]["softmax_scale"] else None
    if kind == "falcon":
        if c["bias"] or not c["parallel_attn"] or c["alibi"]:
            return "biases, sequential blocks or ALiBi"
        return other_width(c, "ffn_hidden_size", "hidden_size")
    if kind == "gpt_bigcode":
        if not c["multi_query"]:
            return "not multi_query"
        return other_width(c, "n_inner", "n_embd") or (None if c["activation_function"] == "gelu" else "activation is not gelu")
    if kind == "starcoder2":
        if c["sliding_window"] and c["sliding_window"] < c["max_position_embeddings"]:
            return "sliding_window"
        return None if c["use_bias"] else "no biases"
    if kind == "phi":
        if c["qk_layernorm"] or c["num_key_value_heads"] not in (None, c["num_attention_heads"]):
            return "qk_layernorm or grouped heads"
        return other_width(c, "intermediate_size", "hidden_size")
    if kind == "minicpm":
        stretched = scaling and scaling["original_max_position_embeddings"] != c["max_position_embeddings"]
        return "longrope that stretches the context" if stretched else None
    return "biases" if kind == "internlm2" and c["bias"] else None


def of_layers(tensors, prefix, layers, names):
    """(layer, GGUF name with weight or bias, tensor) of the layers' tensors that `names` knows, in the order of `names`."""
    for i in range(layers):
        for ours, theirs in names.items():
            for kind in ("weight", "bias"):
                t = tensors.get(f"{prefix}{i}.{ours}.{kind}")
                if t is not None:
                    yield i, f"{theirs}.{kind}", t


def add_layers(w, tensors, prefix, layers, names, change=lambda name, t: t):
    for i, name, t in of_layers(tensors, prefix, layers, names):
        w.add(f"blk.{i}.{name}", change(name, t))


def add_pair(w, name, tensors, ours):
    for kind in ("weight", "bias"):
        if f"{ours}.{kind}" in tensors:
            w.add(f"{name}.{kind}", tensors[f"{ours}.{kind}"])


def write_sizes(w, layers, context, width, inner, heads, kv_heads=None):
    w.u32("block_count", layers)
    w.u32("context_length", context)
    w.u32("embedding_length", width)
    w.u32("feed_forward_length", inner)
    w.u32("attention.head_count", heads)
    if kv_heads is not None:
        w.u32("attention.head_count_kv", kv_heads)


def q_k_v(fused, groups, heads):
    """Rows of each group (query heads, k, v) -> q of all, k of all, v of all."""
    grouped = fused.reshape(groups, heads // groups + 2, -1, *fused.shape[1:])
    return tuple(part.reshape(-1, *fused.shape[1:]) for part in (grouped[:, :-2], grouped[:, -2], grouped[:, -1]))


def convert_bloom(c, tensors, w):
    heads, width = bloom_sizes(c)
    write_sizes(w, c["n_layer"], c["seq_length"], width, 4 * width, heads, heads)
    w.f32("attention.layer_norm_epsilon", c["layer_norm_epsilon"])
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    add_pair(w, "token_embd", tensors, "word_embeddings")
    add_pair(w, "token_embd_norm", tensors, "word_embeddings_layernorm")
    add_pair(w, "output_norm", tensors, "ln_f")
    names = {"input_layernorm": "attn_norm", "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
             "post_attention_layernorm": "ffn_norm", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
    add_layers(w, tensors, "h.", c["n_layer"], names,
               lambda name, t: torch.cat(q_k_v(t, heads, heads)) if name.startswith("attn_qkv") else t)


def convert_mpt(c, tensors, w):
    width, options = c["d_model"], c["attn_config"]
    write_sizes(w, c["n_layers"], c["max_seq_len"], width, 4 * width, c["n_heads"])
    w.f32("attention.layer_norm_epsilon", 1e-5)
    if options["clip_qkv"] is not None:
        w.f32("attention.clamp_kqv", options["clip_qkv"])
    w.f32("attention.max_alibi_bias", options["alibi_bias_max"])
    add_pair(w, "token_embd", tensors, "transformer.wte")
    add_pair(w, "output_norm", tensors, "transformer.norm_f")
    add_layers(w, tensors, "transformer.blocks.", c["n_layers"], {
        "norm_1": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm_2": "ffn_norm",
        "ffn.up_proj": "ffn_up", "ffn.down_proj": "ffn_down"})


def convert_falcon(c, tensors, w):
    """Where there are two norms, attention's is attn_norm_2 and the MLP's is attn_norm."""
    width, heads, layers = c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    groups = c["num_kv_heads"] if c["new_decoder_architecture"] else 1 if c["multi_query"] else heads
    w.string("tensor_data_layout", "jploski")
    write_sizes(w, layers, 2048, width, 4 * width, heads, groups)
    w.f32("attention.layer_norm_epsilon", c["layer_norm_epsilon"])
    add_pair(w, "token_embd", tensors, "transformer.word_embeddings")
    add_pair(w, "output_norm", tensors, "transformer.ln_f")
    add_pair(w, "output", tensors, "lm_head")
    names = {"input_layernorm": "attn_norm", "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2",
             "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
             "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
    add_layers(w, tensors, "transformer.h.", layers, names,
               lambda name, t: torch.cat(q_k_v(t, groups, heads)) if name.startswith("attn_qkv") else t)


def convert_gptbigcode(c, tensors, w):
    width = c["n_embd"]
    write_sizes(w, c["n_layer"], c["n_positions"], width, 4 * width, c["n_head"], 1)
    w.f32("attention.layer_norm_epsilon", c["layer_norm_epsilon"])
    add_pair(w, "token_embd", tensors, "transformer.wte")
    w.add("position_embd.weight", tensors["transformer.wpe.weight"].float())
    add_pair(w, "output_norm", tensors, "transformer.ln_f")
    add_layers(w, tensors, "transformer.h.", c["n_layer"], {
        "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down"})


DECODER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}


def write_decoder_sizes(c, w):
    write_sizes(w, c["num_hidden_layers"], c["max_position_embeddings"], c["hidden_size"], c["intermediate_size"],
                c["num_attention_heads"], c.get("num_key_value_heads") or c["num_attention_heads"])


def add_decoder(c, tensors, w, change=lambda name, t: t):
    add_pair(w, "token_embd", tensors, "model.embed_tokens")
    for ours in ("model.norm", "model.final_layernorm"):
        for kind in ("weight", "bias"):
            if f"{ours}.{kind}" in tensors:
                w.add("output_norm." + kind, change("output_norm." + kind, tensors[f"{ours}.{kind}"]))
    add_pair(w, "output", tensors, "lm_head")
    add_layers(w, tensors, "model.layers.", c["num_hidden_layers"], DECODER_NAMES, change)


def add_rope_factors(c, w):
    for length in ("long", "short"):
        w.add(f"rope_factors_{length}.weight", torch.tensor(c["rope_scaling"][length + "_factor"]))


def convert_starcoder2(c, tensors, w):
    write_decoder_sizes(c, w)
    w.f32("rope.freq_base", c["rope_theta"])
    w.f32("attention.layer_norm_epsilon", c["norm_epsilon"])
    add_decoder(c, tensors, w)


def convert_phi(c, tensors, w):
    write_decoder_sizes(c, w)
    w.f32("attention.layer_norm_epsilon", c["layer_norm_eps"])
    w.u32("rope.dimension_count", int(c["partial_rotary_factor"] * c["hidden_size"]) // c["num_attention_heads"])
    add_decoder(c, tensors, w)


def convert_phi3(c, tensors, w):
    """llama.cpp writes attention.sliding_window, 0 for none, and does not run it."""
    original, factor = c["original_max_position_embeddings"], c["max_position_embeddings"] / c["original_max_position_embeddings"]
    write_decoder_sizes(c, w)
    w.u32("rope.scaling.original_context_length", original)
    w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    w.u32("rope.dimension_count", int(c.get("partial_rotary_factor", 1.0) * c["hidden_size"]) // c["num_attention_heads"])
    w.f32("rope.freq_base", c["rope_theta"])
    w.u32("attention.sliding_window", c["sliding_window"] or 0)
    if c["rope_scaling"]:
        w.f32("rope.scaling.attn_factor", math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0)
        add_rope_factors(c, w)
    add_decoder(c, tensors, w)


def convert_gemma(c, tensors, w):
    write_decoder_sizes(c, w)
    w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    w.u32("attention.key_length", c["head_dim"])
    w.u32("attention.value_length", c["head_dim"])
    add_decoder(c, tensors, w, lambda name, t: t.float() + 1.0 if "norm." in name else t)


def convert_internlm2(c, tensors, w):
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    write_decoder_sizes(c, w)
    w.f32("rope.freq_base", c["rope_theta"])
    w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    add_pair(w, "token_embd", tensors, "model.tok_embeddings")
    add_pair(w, "output_norm", tensors, "model.norm")
    add_pair(w, "output", tensors, "output")
    add_layers(w, tensors, "model.layers.", c["num_hidden_layers"], {
        "attention_norm": "attn_norm", "attention.wo": "attn_output", "ffn_norm": "ffn_norm", "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down"})
    for i in range(c["num_hidden_layers"]):
        q, k, v = q_k_v(tensors[f"model.layers.{i}.attention.wqkv.weight"], kv_heads, heads)
        w.add(f"blk.{i}.attn_q.weight", permute(q, heads))
        w.add(f"blk.{i}.attn_k.weight", permute(k, kv_heads))
        w.add(f"blk.{i}.attn_v.weight", v)


def convert_minicpm(c, tensors, w):
    heads = {"attn_q.weight": c["num_attention_heads"], "attn_k.weight": c["num_key_value_heads"]}
    write_decoder_sizes(c, w)
    if c["rope_scaling"]:
        w.string("rope.scaling.type", "longrope")
    w.f32("rope.freq_base", c["rope_theta"])
    w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    w.f32("embedding_scale", c["scale_emb"])
    w.f32("residual_scale", c["scale_depth"] / math.sqrt(c["num_hidden_layers"]))
    w.f32("logit_scale", c["hidden_size"] / c["dim_model_base"])
    if c["rope_scaling"]:
        add_rope_factors(c, w)
    add_decoder(c, tensors, w, lambda name, t: permute(t, heads[name]) if name in heads else t)


ARCHITECTURES = {"bloom": ("bloom", convert_bloom), "mpt": ("mpt", convert_mpt), "falcon": ("falcon", convert_falcon),
                 "gpt_bigcode": ("starcoder", convert_gptbigcode), "starcoder2": ("starcoder2", convert_starcoder2),
                 "phi": ("phi2", convert_phi), "phi3": ("phi3", convert_phi3), "gemma": ("gemma", convert_gemma),
                 "internlm2": ("internlm2", convert_internlm2), "minicpm": ("minicpm", convert_minicpm)}


def convert(c, tensors, path):
    architecture, write = ARCHITECTURES[c["model_type"]]
    w = GgufWriter(architecture)
    w.put("tokenizer.ggml.model", STRING, "no_vocab")
    w.u32("vocab_size", c["vocab_size"])
    write(c, tensors, w)
    w.write(path)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    config, tensors = read_checkpoint(sys.argv[1])
    reason = inexpressible(config)
    if reason:
        print("no GGUF equivalent:", reason)
        sys.exit(3)
    convert(config, tensors, sys.argv[2])


if __name__ == "__main__":
    main()
