#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a golden case as GGUF by llama.cpp's conventions, or says why GGUF cannot hold it.

usage: make_gguf.py CASE_DIR OUT.gguf      exit code 3: the config has no equivalent in GGUF (the reason is printed)
needs: python3-torch and python3-numpy

Stored types are kept; norms, biases, routers and one-dimensional tensors are F32. MXFP4 experts stay MXFP4. No vocabulary.
"""

import sys

import torch

import reference
from checkpoint_io import STRING, GgufWriter, read_checkpoint

ARCHITECTURES = {"gpt2": "gpt2", "llama": "llama", "qwen2_moe": "qwen2moe", "gpt_neox": "gptneox", "gemma3_text": "gemma3",
                 "gpt_oss": "gpt-oss"}


def inexpressible(c):
    """Why llama.cpp's conventions cannot hold this config; None: they can."""
    kind = c["model_type"]
    if kind not in ARCHITECTURES:
        return "architecture " + kind
    if kind == "gpt_oss" and c["swiglu_limit"] != 7.0:
        return "swiglu_limit is not 7"
    if kind == "qwen2_moe":
        if not all(reference.is_sparse(c, i) for i in range(c["num_hidden_layers"])):
            return "dense layers in qwen2moe"
        if c["norm_topk_prob"]:
            return "norm_topk_prob in qwen2moe"
    if kind == "gpt_neox":
        if c["rotary_emb_base"] != 10000:  # the converter writes no rope.freq_base
            return "rotary_emb_base is not 10000"
        if c["hidden_act"] != "gelu":  # no key says which; "gelu" is what nearly all published checkpoints of the family have
            return "hidden_act is not gelu"
    if kind == "gemma3_text":
        if c["query_pre_attn_scalar"] != c["head_dim"]:
            return "query_pre_attn_scalar is not head_dim"
        if any(reference.gemma_slides(c, i) != ((i + 1) % 6 != 0) for i in range(c["num_hidden_layers"])):
            return "layers that slide are not all but each sixth"
        if c["rope_local_base_freq"] != 10000:
            return "rope_local_base_freq is not 10000"
    return None


def permute(w, heads):
    """Rows of pairs (i, i + D/2) made adjacent, as architecture llama has them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def mxfp4(blocks, scales):
    """[..., G, 16] with elements 2j and 2j + 1 in a byte -> blocks of a scale byte and 16 bytes with elements j and j + 16."""
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)
    data = torch.cat([scales[..., None], codes[..., :16] | (codes[..., 16:] << 4)], -1).contiguous()
    return "mxfp4", data.numpy().tobytes(), tuple(blocks.shape[:-2]) + (blocks.shape[-2] * 32,)


def convert_gpt2(c, tensors, w):
    tensors = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    w.u32("block_count", c["n_layer"])
    w.u32("context_length", c["n_ctx"])
    w.u32("embedding_length", c["n_embd"])
    w.u32("feed_forward_length", c["n_inner"] or 4 * c["n_embd"])
    w.u32("attention.head_count", c["n_head"])
    w.f32("attention.layer_norm_epsilon", c["layer_norm_epsilon"])
    w.add("token_embd.weight", tensors["wte.weight"])
    w.add("position_embd.weight", tensors["wpe.weight"].float())
    w.add("output.weight", tensors["wte.weight"])
    w.add("output_norm.weight", tensors["ln_f.weight"])
    w.add("output_norm.bias", tensors["ln_f.bias"])
    for i in range(c["n_layer"]):
        for ours, theirs in (("ln_1", "attn_norm"), ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"),
                             ("ln_2", "ffn_norm"), ("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")):
            t = tensors[f"h.{i}.{ours}.weight"]
            w.add(f"blk.{i}.{theirs}.weight", t.T if t.dim() == 2 else t)
            w.add(f"blk.{i}.{theirs}.bias", tensors[f"h.{i}.{ours}.bias"])


def convert_gptneox(c, tensors, w):
    heads, width = c["num_attention_heads"], c["hidden_size"]
    w.u32("context_length", c["max_position_embeddings"])
    w.u32("embedding_length", width)
    w.u32("block_count", c["num_hidden_layers"])
    w.u32("feed_forward_length", c["intermediate_size"])
    w.u32("rope.dimension_count", int(c["rotary_pct"] * (width // heads)))
    w.u32("attention.head_count", heads)
    w.boolean("use_parallel_residual", c["use_parallel_residual"])
    w.f32("attention.layer_norm_epsilon", c["layer_norm_eps"])
    w.add("token_embd.weight", tensors["gpt_neox.embed_in.weight"])
    for kind in ("weight", "bias"):
        w.add("output_norm." + kind, tensors["gpt_neox.final_layer_norm." + kind])
    w.add("output.weight", tensors["embed_out.weight"])
    for i in range(c["num_hidden_layers"]):
        for ours, theirs in (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
                             ("attention.query_key_value", "attn_qkv"), ("attention.dense", "attn_output"),
                             ("mlp.dense_h_to_4h", "ffn_up"), ("mlp.dense_4h_to_h", "ffn_down")):
            for kind in ("weight", "bias"):
                t = tensors[f"gpt_neox.layers.{i}.{ours}.{kind}"]
                if theirs == "attn_qkv":  # rows [heads, 3, D] -> [3, heads, D]
                    t = t.reshape(heads, 3, width // heads, *t.shape[1:]).transpose(0, 1).reshape(t.shape)
                w.add(f"blk.{i}.{theirs}.{kind}", t)


DECODER_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.router": "ffn_gate_inp",
    "mlp.gate": "ffn_gate_inp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm"}
OTHER_NORMS = {
    "gpt-oss": {"post_attention_layernorm": "post_attention_norm"},
    "gemma3": {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}}


def write_decoder_keys(c, w):
    d = reference.head_dim(c)
    w.u32("block_count", c["num_hidden_layers"])
    w.u32("context_length", c["max_position_embeddings"])
    w.u32("embedding_length", c["hidden_size"])
    w.u32("feed_forward_length", c["intermediate_size"])
    w.u32("attention.head_count", c["num_attention_heads"])
    w.u32("attention.head_count_kv", c["num_key_value_heads"])
    w.f32("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    w.u32("attention.key_length", d)
    w.u32("attention.value_length", d)
    w.u32("rope.dimension_count", d)
    w.f32("rope.freq_base", c["rope_theta"])
    scaling = c.get("rope_scaling")
    if scaling and scaling["rope_type"] == "llama3":  # a tensor of divisors instead of keys
        scaled = reference.inverse_frequencies(d, c["rope_theta"], scaling, torch.float64)[0]
        plain = 1.0 / c["rope_theta"] ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
        w.add("rope_freqs.weight", (plain / scaled).float())
    elif scaling:
        w.string("rope.scaling.type", scaling["rope_type"])
        w.f32("rope.scaling.factor", scaling["factor"])
        if scaling["rope_type"] == "yarn":
            w.u32("rope.scaling.original_context_length", scaling["original_max_position_embeddings"])
            w.f32("rope.scaling.yarn_beta_fast", scaling["beta_fast"])
            w.f32("rope.scaling.yarn_beta_slow", scaling["beta_slow"])
    if w.architecture in ("gemma3", "gpt-oss"):
        w.u32("attention.sliding_window", c["sliding_window"])
    if w.architecture == "gemma3" and c["final_logit_softcapping"]:
        w.f32("final_logit_softcapping", c["final_logit_softcapping"])
    if w.architecture == "gpt-oss":
        w.u32("expert_feed_forward_length", c["intermediate_size"])
        w.u32("expert_count", c["num_local_experts"])
        w.u32("expert_used_count", c["num_experts_per_tok"])
    if w.architecture == "qwen2moe":
        w.u32("expert_count", c["num_experts"])
        w.u32("expert_used_count", c["num_experts_per_tok"])
        w.u32("expert_feed_forward_length", c["moe_intermediate_size"])
        w.u32("expert_shared_feed_forward_length", c["shared_expert_intermediate_size"])


def add_experts(c, tensors, w, i):
    prefix = f"model.layers.{i}.mlp.experts."
    if w.architecture == "gpt-oss":  # rows of gate_up alternate gate, up
        for ours, rows, theirs in (("gate_up_proj", slice(0, None, 2), "gate"), ("gate_up_proj", slice(1, None, 2), "up"),
                                   ("down_proj", slice(None), "down")):
            w.add(f"blk.{i}.ffn_{theirs}_exps.weight",
                  mxfp4(tensors[f"{prefix}{ours}_blocks"][:, rows], tensors[f"{prefix}{ours}_scales"][:, rows]))
            w.add(f"blk.{i}.ffn_{theirs}_exps.bias", tensors[f"{prefix}{ours}_bias"][:, rows].float())
    elif w.architecture == "qwen2moe" and reference.is_sparse(c, i):
        for name in ("gate", "up", "down"):
            w.add(f"blk.{i}.ffn_{name}_exps.weight",
                  torch.stack([tensors[f"{prefix}{e}.{name}_proj.weight"] for e in range(c["num_experts"])]))


def convert_decoder(c, tensors, w):
    write_decoder_keys(c, w)
    names = {**DECODER_NAMES, **OTHER_NORMS.get(w.architecture, {})}

    def norm(t):
        return t.float() + 1.0 if w.architecture == "gemma3" else t  # Gemma applies 1 + w; GGUF stores the sum

    w.add("token_embd.weight", tensors["model.embed_tokens.weight"])
    w.add("output_norm.weight", norm(tensors["model.norm.weight"]))
    if "lm_head.weight" in tensors:
        w.add("output.weight", tensors["lm_head.weight"])
    for i in range(c["num_hidden_layers"]):
        b = f"model.layers.{i}."
        for name, t in tensors.items():
            stem, _, suffix = name.removeprefix(b).rpartition(".")
            if not name.startswith(b) or stem not in names:
                continue
            theirs = names[stem]
            if w.architecture == "llama" and theirs in ("attn_q", "attn_k"):
                t = permute(t, c["num_attention_heads"] if theirs == "attn_q" else c["num_key_value_heads"])
            if theirs.endswith("norm"):
                t = norm(t)
            elif theirs == "ffn_gate_inp":
                t = t.float()
            elif theirs == "ffn_gate_inp_shexp":  # [1, H] -> [H]
                t = t.reshape(-1)
            w.add(f"blk.{i}.{theirs}.{suffix}", t)
        if w.architecture == "gpt-oss":
            w.add(f"blk.{i}.attn_sinks.weight", tensors[b + "self_attn.sinks"])
        add_experts(c, tensors, w, i)


def convert(c, tensors, path):
    w = GgufWriter(ARCHITECTURES[c["model_type"]])
    w.put("tokenizer.ggml.model", STRING, "no_vocab")
    w.u32("vocab_size", c["vocab_size"])
    {"gpt2": convert_gpt2, "gpt_neox": convert_gptneox}.get(c["model_type"], convert_decoder)(c, tensors, w)
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
