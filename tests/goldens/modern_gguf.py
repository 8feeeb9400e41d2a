#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a golden case of make_modern.py as GGUF by llama.cpp's conventions, or says why GGUF cannot hold it.

usage: modern_gguf.py CASE_DIR OUT.gguf [kv_b]      exit code 3: the config has no equivalent in GGUF (the reason is printed)
needs: python3-torch and python3-numpy

Keys and tensors are those of llama.cpp's converter. Stored types are kept; norms, biases, routers and one-dimensional tensors are F32.
No vocabulary. DeepSeek-V2 and V3 have two forms: keys and values of latent attention cut by head, the part of the keys transposed
(attn_k_b, attn_v_b; model.gguf), and before April 2025 in one matrix (attn_kv_b; model-kv_b.gguf, argument kv_b).
"""

import os
import sys

import torch

import modern_reference
from checkpoint_io import BOOL_ARRAY, I32_ARRAY, STRING, GgufWriter, read_checkpoint
from make_gguf import permute
from reference import head_dim, inverse_frequencies

ARCHITECTURES = {"deepseek": "deepseek", "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2", "glm": "chatglm", "glm4": "glm4",
                 "glm4_moe": "glm4moe", "cohere": "command-r", "cohere2": "cohere2", "granite": "granite",
                 "granitemoe": "granitemoe", "granitemoeshared": "granitemoe", "olmo2": "olmo2", "olmoe": "olmoe",
                 "smollm3": "smollm3", "llama4_text": "llama4", "lfm2": "lfm2", "lfm2_moe": "lfm2moe", "gemma4_text": "gemma4"}
HALVES_PERMUTED = ("deepseek", "granite", "granitemoe", "smollm3")  # rope of halves in the directory, of adjacent pairs in GGUF


def inexpressible(c):
    """Why llama.cpp's conventions cannot hold this config; None: they can."""
    kind, n = c["model_type"], c["num_hidden_layers"]
    if kind == "deepseek":
        if c["norm_topk_prob"]:
            return "norm_topk_prob in deepseek"
        if c["moe_layer_freq"] != 1:
            return "moe_layer_freq is not 1"
    if kind in ("deepseek_v2", "deepseek_v3"):
        scaling = c.get("rope_scaling") or {}
        if scaling.get("mscale", 1) != scaling.get("mscale_all_dim", 0) and scaling:
            return "mscale is not mscale_all_dim"
        if c["rms_norm_eps"] != modern_reference.LATENT_EPS:
            return "rms_norm_eps is not that of the latent norms"
    if kind == "glm":
        if c["rope_theta"] != 10000 or c["rms_norm_eps"] != 1e-5:  # the converter writes these two, whatever the config says
            return "rope_theta is not 10000, or rms_norm_eps not 1e-5"
        if head_dim(c) != c["hidden_size"] // c["num_attention_heads"]:
            return "head_dim is not hidden_size / heads"
    if kind == "cohere2":
        if [t == "sliding_attention" for t in modern_reference.layer_types(c, c.get("sliding_window_pattern", 4))] != [
                (i + 1) % 4 != 0 for i in range(n)]:
            return "layers that slide are not all but each fourth"
        if c["attention_bias"]:
            return "biases in cohere2"
    if kind == "olmo2" and (c["attention_bias"] or c["tie_word_embeddings"]):
        return "biases, or a tied head, in olmo2"
    if kind == "olmoe":
        if c["clip_qkv"] is not None or c["norm_topk_prob"] or c["attention_bias"] or c["tie_word_embeddings"]:
            return "clip_qkv, norm_topk_prob, biases or a tied head in olmoe"
        if c["rms_norm_eps"] != 1e-5:  # what the converter writes, whatever the config says
            return "rms_norm_eps is not 1e-5"
    if kind == "smollm3":
        if any(bool(r) != ((i + 1) % 4 != 0) for i, r in enumerate(modern_reference.uses_rope(c))):
            return "layers without rope are not each fourth"
        if c["use_sliding_window"]:
            return "use_sliding_window in smollm3"
    if kind == "llama4_text":
        if c["attention_chunk_size"] != 8192 or c["floor_scale"] != 8192 or c["attn_scale"] != 0.1:
            return "attention_chunk_size, floor_scale or attn_scale is not the published one"
        if any(bool(r) != ((i + 1) % 4 != 0) for i, r in enumerate(modern_reference.uses_rope(c))) or not c["use_qk_norm"]:
            return "layers without rope are not each fourth, or there is no QK norm"
        if c.get("moe_layers") is not None or c.get("layer_types"):
            return "moe_layers or layer_types in llama4"
    if kind == "lfm2_moe" and (not c["norm_topk_prob"] or c["routed_scaling_factor"] != 1):
        return "norm_topk_prob or routed_scaling_factor in lfm2moe"
    return None


# Keys.


def decoder_keys(c, w):
    """What the converter writes for every family that does not replace it."""
    w.u32("block_count", c["num_hidden_layers"] + (c.get("num_nextn_predict_layers", 0) if w.architecture == "glm4moe" else 0))
    w.u32("context_length", c["max_position_embeddings"])
    w.u32("embedding_length", c["hidden_size"])
    width = c["intermediate_size_mlp"] if w.architecture == "llama4" else c["intermediate_size"]
    w.u32("feed_forward_length", modern_reference.lfm2_width(c) if w.architecture == "lfm2" else width)
    w.u32("attention.head_count", c["num_attention_heads"])
    if w.architecture.startswith("lfm2"):  # 0: a layer that convolves
        w.put(f"{w.architecture}.attention.head_count_kv", I32_ARRAY,
              [c["num_key_value_heads"] if attends else 0 for attends in modern_reference.lfm2_attends(c)])
    elif "kv_lora_rank" not in c:
        w.u32("attention.head_count_kv", c["num_key_value_heads"])
    scaling = c.get("rope_scaling")
    if scaling and scaling.get("rope_type") == "llama3":  # a tensor of divisors instead of keys
        d = head_dim(c)
        scaled = inverse_frequencies(d, c["rope_theta"], scaling, torch.float64)[0]
        plain = 1.0 / c["rope_theta"] ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
        w.add("rope_freqs.weight", (plain / scaled).float())
    elif scaling:
        w.string("rope.scaling.type", scaling.get("rope_type", scaling.get("type")))
        w.f32("rope.scaling.factor", scaling["factor"])
        if "original_max_position_embeddings" in scaling:
            w.u32("rope.scaling.original_context_length", scaling["original_max_position_embeddings"])
    w.f32("rope.freq_base", c["rope_theta"])
    if "rms_norm_eps" in c:
        w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    if "norm_eps" in c:
        w.f32("attention.layer_norm_rms_epsilon", c["norm_eps"])
    if "layer_norm_eps" in c:
        w.f32("attention.layer_norm_epsilon", c["layer_norm_eps"])
    experts = c.get("num_local_experts") or c.get("num_experts") or c.get("n_routed_experts")
    if experts:
        w.u32("expert_count", experts)
        w.u32("expert_used_count", c["num_experts_per_tok"])
    if "scoring_func" in c:
        w.u32("expert_gating_func", {"softmax": 1, "sigmoid": 2}[c["scoring_func"]])
    if "head_dim" in c:
        w.u32("attention.key_length", c["head_dim"])
        w.u32("attention.value_length", c["head_dim"])


def group_keys(c, w):
    if "n_group" in c:
        w.u32("expert_group_count", c["n_group"])
        w.u32("expert_group_used_count", c["topk_group"])


def shared_expert_keys(c, w):
    w.u32("leading_dense_block_count", c["first_k_dense_replace"])
    w.u32("expert_feed_forward_length", c["moe_intermediate_size"])
    w.u32("expert_shared_count", c["n_shared_experts"])


def deepseek_keys(c, w, kv_b):
    w.u32("rope.dimension_count", head_dim(c))
    w.string("rope.scaling.type", "none")
    shared_expert_keys(c, w)
    w.f32("expert_weights_scale", 1.0)


def deepseek2_keys(c, w, kv_b):
    """A file with attn_kv_b has the sizes of a head's key and value as they are. Where it is cut, a head's key is the latent and its
    rotated part, its value the latent, one KV head for all, and the sizes of a head have the suffix mla."""
    nope, rope, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
    shared_expert_keys(c, w)
    if not kv_b or c["n_group"] > 1:  # files of that age have no groups; the case needs them
        group_keys(c, w)
    w.u32("attention.head_count_kv", c["num_key_value_heads"] if kv_b else 1)
    if c["q_lora_rank"] is not None:
        w.u32("attention.q_lora_rank", c["q_lora_rank"])
    w.u32("attention.kv_lora_rank", rank)
    if kv_b:
        w.u32("attention.key_length", nope + rope)
        w.u32("attention.value_length", c["v_head_dim"])
    else:
        w.u32("attention.key_length", rank + rope)
        w.u32("attention.value_length", rank)
        w.u32("attention.key_length_mla", nope + rope)
        w.u32("attention.value_length_mla", c["v_head_dim"])
    w.f32("expert_weights_scale", c["routed_scaling_factor"])
    if kv_b or c["norm_topk_prob"]:
        w.boolean("expert_weights_norm", c["norm_topk_prob"])
    w.u32("rope.dimension_count", rope)
    scaling = c.get("rope_scaling")
    if scaling:
        if not kv_b:  # without them: 32 and 1
            w.f32("rope.scaling.yarn_beta_fast", scaling["beta_fast"])
            w.f32("rope.scaling.yarn_beta_slow", scaling["beta_slow"])
        w.f32("rope.scaling.yarn_log_multiplier", 0.1 * scaling["mscale_all_dim"])


def glm4moe_keys(c, w, kv_b):
    shared_expert_keys(c, w)
    group_keys(c, w)
    w.u32("rope.dimension_count", modern_reference.rotated(c))
    w.u32("expert_gating_func", 2)
    w.f32("expert_weights_scale", c["routed_scaling_factor"])
    w.boolean("expert_weights_norm", c["norm_topk_prob"])
    w.u32("nextn_predict_layers", c["num_nextn_predict_layers"])


def glm4_keys(c, w, kv_b):
    w.u32("rope.dimension_count", modern_reference.rotated(c))


def command_r_keys(c, w, kv_b):
    w.f32("logit_scale", c["logit_scale"])
    w.string("rope.scaling.type", "none")


def cohere2_keys(c, w, kv_b):
    w.u32("attention.key_length", head_dim(c))
    w.u32("attention.value_length", head_dim(c))
    w.f32("logit_scale", c["logit_scale"])
    w.u32("attention.sliding_window", c["sliding_window"])
    w.u32("rope.dimension_count", int(c["rotary_pct"] * head_dim(c)))
    w.string("rope.scaling.type", "none")


def granite_keys(c, w, kv_b):
    w.u32("rope.dimension_count", head_dim(c))
    w.f32("attention.scale", c["attention_multiplier"])
    w.f32("embedding_scale", c["embedding_multiplier"])
    w.f32("residual_scale", c["residual_multiplier"])
    w.f32("logit_scale", c["logits_scaling"])  # a divisor, in spite of its name
    if c.get("shared_intermediate_size"):
        w.u32("expert_shared_feed_forward_length", c["shared_intermediate_size"])


def smollm3_keys(c, w, kv_b):
    w.u32("rope.dimension_count", head_dim(c))


def llama4_keys(c, w, kv_b):
    w.u32("rope.dimension_count", head_dim(c))
    w.u32("interleave_moe_layer_step", c["interleave_moe_layer_step"])
    w.u32("expert_feed_forward_length", c["intermediate_size"])


def chatglm_keys(c, w, kv_b):
    """GlmForCausalLM: keys of its own. The context is the width, as the config lacks seq_length."""
    w.u32("context_length", c["hidden_size"])
    w.u32("embedding_length", c["hidden_size"])
    w.u32("feed_forward_length", c["intermediate_size"])
    w.u32("block_count", c["num_hidden_layers"])
    w.u32("attention.head_count", c["num_attention_heads"])
    w.u32("attention.head_count_kv", c["num_key_value_heads"])
    w.f32("attention.layer_norm_rms_epsilon", 1e-5)
    w.u32("rope.dimension_count", modern_reference.rotated(c))
    w.f32("rope.freq_base", 10000)


def lfm2_keys(c, w, kv_b):
    w.u32("shortconv.l_cache", c["conv_L_cache"])
    if w.architecture == "lfm2moe":
        w.u32("expert_feed_forward_length", c["moe_intermediate_size"])
        w.u32("leading_dense_block_count", c["num_dense_layers"])
        w.u32("expert_gating_func", 2)


def gemma4_keys(c, w, kv_b):
    """Keys of its own: sizes of layers with and without a window, and lists."""
    sizes = [modern_reference.gemma4_sizes(c, i) for i in range(c["num_hidden_layers"])]
    w.u32("block_count", c["num_hidden_layers"])
    w.u32("context_length", c["max_position_embeddings"])
    w.u32("embedding_length", c["hidden_size"])
    w.put("gemma4.feed_forward_length", I32_ARRAY, [width for _, _, width, _, _ in sizes])
    w.u32("attention.head_count", c["num_attention_heads"])
    w.put("gemma4.attention.head_count_kv", I32_ARRAY, [kv for _, kv, _, _, _ in sizes])
    w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    w.f32("rope.freq_base", c["rope_parameters"]["full_attention"]["rope_theta"])
    w.f32("rope.freq_base_swa", c["rope_parameters"]["sliding_attention"]["rope_theta"])
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        w.u32(name, c["global_head_dim"])
        w.u32(name + "_swa", c["head_dim"])
    w.u32("attention.sliding_window", c["sliding_window"])
    w.put("gemma4.attention.sliding_window_pattern", BOOL_ARRAY, [t == "sliding_attention" for t in modern_reference.gemma4_types(c)])
    w.u32("attention.shared_kv_layers", c["num_kv_shared_layers"])
    w.u32("embedding_length_per_layer_input", c["hidden_size_per_layer_input"])
    w.f32("final_logit_softcapping", c["final_logit_softcapping"])
    if c["enable_moe_block"]:
        w.u32("expert_count", c["num_experts"])
        w.u32("expert_used_count", c["top_k_experts"])
        w.u32("expert_feed_forward_length", c["moe_intermediate_size"])


def gemma4_tensors(c, tensors, w):
    """Tensors outside the layers: divisors of the full layers' frequencies, and the second embedding."""
    half, rope = c["global_head_dim"] // 2, c["rope_parameters"]["full_attention"]
    turned = int(rope["partial_rotary_factor"] * c["global_head_dim"] // 2)
    w.add("rope_freqs.weight", torch.tensor([1.0] * turned + [1e30] * (half - turned)))
    for theirs, name in (("per_layer_token_embd", "embed_tokens_per_layer"), ("per_layer_model_proj", "per_layer_model_projection"),
                         ("per_layer_proj_norm", "per_layer_projection_norm")):
        if f"model.{name}.weight" in tensors:
            w.add(theirs + ".weight", tensors[f"model.{name}.weight"])


KEYS = {"deepseek": deepseek_keys, "deepseek2": deepseek2_keys, "glm4moe": glm4moe_keys, "glm4": glm4_keys, "chatglm": chatglm_keys,
        "command-r": command_r_keys, "cohere2": cohere2_keys, "granite": granite_keys, "granitemoe": granite_keys,
        "smollm3": smollm3_keys, "llama4": llama4_keys, "lfm2": lfm2_keys, "lfm2moe": lfm2_keys, "gemma4": gemma4_keys}
WITH_VOCABULARY_SIZE = ("deepseek", "deepseek2", "cohere2", "granite", "granitemoe", "smollm3", "llama4", "lfm2", "lfm2moe")

# Tensors. Names of a layer, without suffix.

NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b", "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm", "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_up_proj": "ffn_up",
    "block_sparse_moe.router.layer": "ffn_gate_inp", "block_sparse_moe.output_linear": "ffn_down_exps",
    "shared_mlp.output_linear": "ffn_down_shexp", "feed_forward.router": "ffn_gate_inp", "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down", "feed_forward.shared_expert.gate_proj": "ffn_gate_shexp",
    "feed_forward.shared_expert.up_proj": "ffn_up_shexp", "feed_forward.shared_expert.down_proj": "ffn_down_shexp",
    "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm", "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
    "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down", "feed_forward.gate": "ffn_gate_inp",
    "feed_forward.expert_bias": "exp_probs_b.bias",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "router.proj": "ffn_gate_inp", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
    "layer_scalar": "layer_output_scale.weight", "enorm": "nextn.enorm", "hnorm": "nextn.hnorm", "eh_proj": "nextn.eh_proj", "shared_head.norm": "nextn.shared_head_norm",
    "shared_head.head": "nextn.shared_head_head", "embed_tokens": "nextn.embed_tokens"}
NORM_AFTER = {"gemma4": "post_attention_norm", "olmo2": "post_attention_norm", "glm4moe": "post_attention_norm"}  # post_attention_layernorm


def layer_tensors(c, architecture, name, t, kv_b):
    """-> [(name in GGUF, tensor)] of one tensor of a layer."""
    if name == "block_sparse_moe.input_linear.weight":
        return list(zip(("ffn_gate_exps.weight", "ffn_up_exps.weight"), t.chunk(2, 1)))
    if name == "shared_mlp.input_linear.weight":
        return list(zip(("ffn_gate_shexp.weight", "ffn_up_shexp.weight"), t.chunk(2, 0)))
    if name == "feed_forward.experts.gate_up_proj":  # [X, H, 2F]: columns of gate, then of up
        return list(zip(("ffn_gate_exps.weight", "ffn_up_exps.weight"), t.transpose(1, 2).chunk(2, 1)))
    if name == "experts.gate_up_proj":  # rows of gate, then of up: as it is
        return [("ffn_gate_up_exps.weight", t)]
    if name == "experts.down_proj":
        return [("ffn_down_exps.weight", t)]
    if name == "feed_forward.experts.down_proj":
        return [("ffn_down_exps.weight", t.transpose(1, 2))]
    if name == "self_attn.kv_b_proj.weight" and not kv_b:
        k, v = t.view(c["num_attention_heads"], -1, c["kv_lora_rank"]).split([c["qk_nope_head_dim"], c["v_head_dim"]], 1)
        return [("attn_k_b.weight", k.transpose(1, 2)), ("attn_v_b.weight", v)]
    if name == "conv.conv.weight":
        return [("shortconv.conv.weight", t.squeeze(1).float())]
    stem, _, suffix = name.rpartition(".")
    if name in NAMES:
        return [(NAMES[name], t.float())]
    theirs = NAMES[stem]
    if stem == "post_attention_layernorm":
        theirs = NORM_AFTER.get(architecture, theirs)
    if architecture in HALVES_PERMUTED and theirs in ("attn_q", "attn_k"):
        t = permute(t, c["num_attention_heads"] if theirs == "attn_q" else c["num_key_value_heads"])
    if "norm" in theirs or theirs == "ffn_gate_inp":
        t = t.float()
    return [(f"{theirs}.{suffix}", t)]


def convert(c, tensors, path, kv_b=False):
    w = GgufWriter(ARCHITECTURES[c["model_type"]])
    w.put("tokenizer.ggml.model", STRING, "no_vocab")
    if w.architecture in WITH_VOCABULARY_SIZE:
        w.u32("vocab_size", c["vocab_size"])
    if w.architecture not in ("chatglm", "gemma4"):
        decoder_keys(c, w)
    KEYS.get(w.architecture, lambda *_: None)(c, w, kv_b)
    w.add("token_embd.weight", tensors["model.embed_tokens.weight"])
    if w.architecture == "gemma4":
        gemma4_tensors(c, tensors, w)
    if w.architecture.startswith("lfm2"):
        w.add("token_embd_norm.weight", tensors["model.embedding_norm.weight"].float())
    else:
        w.add("output_norm.weight", tensors["model.norm.weight"])
    if "lm_head.weight" in tensors:
        w.add("output.weight", tensors["lm_head.weight"])
    layers = c["num_hidden_layers"] + (c.get("num_nextn_predict_layers", 0) if w.architecture == "glm4moe" else 0)
    for i in range(layers):  # deepseek2 leaves out the layers for predicting several tokens
        b, experts = f"model.layers.{i}.", {}
        for name, t in tensors.items():
            if not name.startswith(b):
                continue
            name = name.removeprefix(b)
            if name.startswith(("mlp.experts.", "feed_forward.experts.")) and name.split(".")[2].isdigit():
                expert, matrix = name.split(".")[2:4]
                matrix = {"w1": "gate", "w3": "up", "w2": "down"}.get(matrix, matrix.removesuffix("_proj"))
                experts.setdefault(matrix, {})[int(expert)] = t
                continue
            for theirs, value in layer_tensors(c, w.architecture, name, t, kv_b):
                w.add(f"blk.{i}.{theirs}", value)
        for matrix, each in experts.items():
            w.add(f"blk.{i}.ffn_{matrix}_exps.weight", torch.stack([each[e] for e in range(len(each))]))
    w.write(path)


def write_all(c, tensors, directory, kv_b):
    """model.gguf where GGUF can hold the case, and model-kv_b.gguf where that is wanted."""
    if inexpressible(c) is None:
        convert(c, tensors, os.path.join(directory, "model.gguf"))
        if kv_b:
            convert(c, tensors, os.path.join(directory, "model-kv_b.gguf"), kv_b=True)


def main():
    if not 3 <= len(sys.argv) <= 4 or sys.argv[3:] not in ([], ["kv_b"]):
        sys.exit(__doc__)
    c, tensors = read_checkpoint(sys.argv[1])
    reason = inexpressible(c)
    if reason:
        print("no GGUF equivalent:", reason)
        sys.exit(3)
    convert(c, tensors, sys.argv[2], kv_b=len(sys.argv) == 4)


if __name__ == "__main__":
    main()
