// SPDX-License-Identifier: Apache-2.0
// Small checkpoints that exist in memory only: the metadata and tensors that a reader would have found. The
// names are written out here a second time, from the published checkpoints, so that a slip in a family's
// table shows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "loaders/inventory/inventory.h"

namespace tally::synthetic {

struct Builder {
  Inventory inv;

  Builder(FileFormat format) {
    inv.format = format;
    inv.path = "made-up";
    inv.files.push_back({"made-up/weights", 1 << 30});
    inv.metadata.source = format == FileFormat::kGguf ? "made-up/weights" : "made-up/config.json";
  }
  Builder& Set(std::string key, MetaValue value) {
    inv.metadata.Set(std::move(key), std::move(value));
    return *this;
  }
  Builder& Int(std::string key, int64_t value) { return Set(std::move(key), value); }
  Builder& Add(std::string name, std::vector<uint64_t> shape, DType type = DType::kF32) {
    StoredTensor t;
    t.name = std::move(name);
    t.shape = std::move(shape);
    t.dtype = type;
    t.bytes = StoredBytes(type, t.elements()).value_or(0);
    inv.tensors.push_back(std::move(t));
    return *this;
  }
  Inventory Done() {
    inv.BuildIndex();
    return std::move(inv);
  }
};

// GPT-2: 2 layers, width 8, 2 heads, feed-forward 32, 11 tokens, 16 positions.
inline Inventory HfGpt2(const std::string& prefix = "") {
  Builder b(FileFormat::kHuggingFace);
  b.Set("architectures", std::vector<std::string>{"GPT2LMHeadModel"}).Set("model_type", std::string("gpt2"));
  b.Int("n_layer", 2).Int("n_embd", 8).Int("n_head", 2).Int("n_positions", 16).Int("vocab_size", 11).Int("eos_token_id", 10);
  b.Set("layer_norm_epsilon", 1e-5).Set("activation_function", std::string("gelu_new"));
  b.Add(prefix + "wte.weight", {11, 8}).Add(prefix + "wpe.weight", {16, 8});
  b.Add(prefix + "ln_f.weight", {8}).Add(prefix + "ln_f.bias", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = prefix + "h." + std::to_string(i) + ".";
    b.Add(p + "ln_1.weight", {8}).Add(p + "ln_1.bias", {8}).Add(p + "ln_2.weight", {8}).Add(p + "ln_2.bias", {8});
    b.Add(p + "attn.c_attn.weight", {8, 24}).Add(p + "attn.c_attn.bias", {24});
    b.Add(p + "attn.c_proj.weight", {8, 8}).Add(p + "attn.c_proj.bias", {8});
    b.Add(p + "mlp.c_fc.weight", {8, 32}).Add(p + "mlp.c_fc.bias", {32});
    b.Add(p + "mlp.c_proj.weight", {32, 8}).Add(p + "mlp.c_proj.bias", {8});
    b.Add(p + "attn.bias", {1, 1, 16, 16});
  }
  return b.Done();
}

inline Inventory GgufGpt2() {
  Builder b(FileFormat::kGguf);
  b.Set("general.architecture", std::string("gpt2")).Int("gpt2.block_count", 2).Int("gpt2.embedding_length", 8);
  b.Int("gpt2.attention.head_count", 2).Int("gpt2.context_length", 16).Int("gpt2.feed_forward_length", 32);
  b.Set("gpt2.attention.layer_norm_epsilon", 1e-5).Int("tokenizer.ggml.eos_token_id", 10);
  b.Add("token_embd.weight", {11, 8}).Add("position_embd.weight", {16, 8}).Add("output.weight", {11, 8});
  b.Add("output_norm.weight", {8}).Add("output_norm.bias", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"attn_norm", "ffn_norm"}) b.Add(p + norm + ".weight", {8}).Add(p + norm + ".bias", {8});
    b.Add(p + "attn_qkv.weight", {24, 8}).Add(p + "attn_qkv.bias", {24});
    b.Add(p + "attn_output.weight", {8, 8}).Add(p + "attn_output.bias", {8});
    b.Add(p + "ffn_up.weight", {32, 8}).Add(p + "ffn_up.bias", {32});
    b.Add(p + "ffn_down.weight", {8, 32}).Add(p + "ffn_down.bias", {8});
  }
  return b.Done();
}

// Llama: 3 layers, width 12, 4 heads of 6 over 2 key-value heads, feed-forward 20, 11 tokens, untied.
inline Inventory HfLlama(bool biases = false) {
  Builder b(FileFormat::kHuggingFace);
  b.Set("architectures", std::vector<std::string>{"LlamaForCausalLM"}).Set("model_type", std::string("llama"));
  b.Int("num_hidden_layers", 3)
      .Int("hidden_size", 12)
      .Int("num_attention_heads", 4)
      .Int("num_key_value_heads", 2)
      .Int("head_dim", 6);
  b.Int("intermediate_size", 20).Int("vocab_size", 11).Int("max_position_embeddings", 64).Set("rms_norm_eps", 1e-5);
  b.Set("rope_theta", 10000.0).Set("tie_word_embeddings", false).Set("attention_bias", biases).Set("mlp_bias", biases);
  b.Add("model.embed_tokens.weight", {11, 12}).Add("model.norm.weight", {12}).Add("lm_head.weight", {11, 12});
  for (int i = 0; i < 3; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    b.Add(p + "input_layernorm.weight", {12}).Add(p + "post_attention_layernorm.weight", {12});
    const std::vector<std::pair<const char*, std::vector<uint64_t>>> matrices = {
        {"self_attn.q_proj", {24, 12}}, {"self_attn.k_proj", {12, 12}}, {"self_attn.v_proj", {12, 12}},
        {"self_attn.o_proj", {12, 24}}, {"mlp.gate_proj", {20, 12}},    {"mlp.up_proj", {20, 12}},
        {"mlp.down_proj", {12, 20}}};
    for (const auto& [name, shape] : matrices) {
      b.Add(p + name + ".weight", shape);
      if (biases) b.Add(p + name + ".bias", {shape[0]});
    }
  }
  return b.Done();
}

inline Inventory GgufLlama() {
  Builder b(FileFormat::kGguf);
  b.Set("general.architecture", std::string("llama")).Set("general.name", std::string("tiny"));
  b.Int("llama.block_count", 3)
      .Int("llama.embedding_length", 12)
      .Int("llama.attention.head_count", 4)
      .Int("llama.attention.head_count_kv", 2);
  b.Int("llama.attention.key_length", 6).Int("llama.attention.value_length", 6).Int("llama.rope.dimension_count", 6);
  b.Int("llama.feed_forward_length", 20).Int("llama.context_length", 64).Set("llama.attention.layer_norm_rms_epsilon", 1e-5);
  b.Set("llama.rope.freq_base", 500000.0);
  b.Add("rope_freqs.weight", {3}).Add("token_embd.weight", {11, 12}).Add("output_norm.weight", {12});
  for (int i = 0; i < 3; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    b.Add(p + "attn_norm.weight", {12})
        .Add(p + "ffn_norm.weight", {12})
        .Add(p + "attn_q.weight", {24, 12})
        .Add(p + "attn_k.weight", {12, 12});
    b.Add(p + "attn_v.weight", {12, 12}).Add(p + "attn_output.weight", {12, 24}).Add(p + "ffn_gate.weight", {20, 12});
    b.Add(p + "ffn_up.weight", {20, 12}).Add(p + "ffn_down.weight", {12, 20});
  }
  return b.Done();
}

// gpt-oss: 3 layers, width 64, 4 heads of 16 over 2, 5 experts of 32 of which 2 run, 11 tokens.
inline Inventory HfGptOss() {
  Builder b(FileFormat::kHuggingFace);
  b.Set("architectures", std::vector<std::string>{"GptOssForCausalLM"}).Set("model_type", std::string("gpt_oss"));
  b.Int("num_hidden_layers", 3)
      .Int("hidden_size", 64)
      .Int("num_attention_heads", 4)
      .Int("num_key_value_heads", 2)
      .Int("head_dim", 16);
  b.Int("intermediate_size", 32).Int("vocab_size", 11).Int("max_position_embeddings", 512).Set("rms_norm_eps", 1e-5);
  b.Set("rope_theta", int64_t{150000}).Int("num_local_experts", 5).Int("num_experts_per_tok", 2).Int("sliding_window", 8);
  b.Set("layer_types", std::vector<std::string>{"sliding_attention", "full_attention", "sliding_attention"});
  b.Set("rope_scaling.rope_type", std::string("yarn")).Set("rope_scaling.factor", 32.0).Set("rope_scaling.truncate", false);
  b.Int("rope_scaling.original_max_position_embeddings", 4096)
      .Set("rope_scaling.beta_fast", 32.0)
      .Set("rope_scaling.beta_slow", 1.0);
  b.Set("eos_token_id", std::vector<int64_t>{7, 3});
  b.Add("model.embed_tokens.weight", {11, 64}, DType::kBF16)
      .Add("model.norm.weight", {64}, DType::kBF16)
      .Add("lm_head.weight", {11, 64});
  for (int i = 0; i < 3; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    b.Add(p + "input_layernorm.weight", {64}).Add(p + "post_attention_layernorm.weight", {64}).Add(p + "self_attn.sinks", {4});
    for (const auto& [name, out, in] : {std::tuple{"q", 64, 64}, {"k", 32, 64}, {"v", 32, 64}, {"o", 64, 64}}) {
      const uint64_t rows = out, cols = in;
      b.Add(p + "self_attn." + name + "_proj.weight", {rows, cols}).Add(p + "self_attn." + name + "_proj.bias", {rows});
    }
    b.Add(p + "mlp.router.weight", {5, 64}).Add(p + "mlp.router.bias", {5});
    b.Add(p + "mlp.experts.gate_up_proj_blocks", {5, 64, 2, 16}, DType::kU8)
        .Add(p + "mlp.experts.gate_up_proj_scales", {5, 64, 2}, DType::kU8);
    b.Add(p + "mlp.experts.gate_up_proj_bias", {5, 64});
    b.Add(p + "mlp.experts.down_proj_blocks", {5, 64, 1, 16}, DType::kU8)
        .Add(p + "mlp.experts.down_proj_scales", {5, 64, 1}, DType::kU8);
    b.Add(p + "mlp.experts.down_proj_bias", {5, 64});
  }
  return b.Done();
}

inline Inventory GgufGptOss() {
  Builder b(FileFormat::kGguf);
  b.Set("general.architecture", std::string("gpt-oss"));
  b.Int("gpt-oss.block_count", 3).Int("gpt-oss.embedding_length", 64).Int("gpt-oss.attention.head_count", 4);
  b.Int("gpt-oss.attention.head_count_kv", 2).Int("gpt-oss.attention.key_length", 16).Int("gpt-oss.attention.value_length", 16);
  b.Int("gpt-oss.feed_forward_length", 32).Int("gpt-oss.expert_feed_forward_length", 32).Int("gpt-oss.context_length", 512);
  b.Int("gpt-oss.expert_count", 5).Int("gpt-oss.expert_used_count", 2).Int("gpt-oss.attention.sliding_window", 8);
  b.Set("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5).Set("gpt-oss.rope.freq_base", 150000.0);
  b.Set("gpt-oss.rope.scaling.type", std::string("yarn")).Set("gpt-oss.rope.scaling.factor", 32.0);
  b.Int("gpt-oss.rope.scaling.original_context_length", 4096);
  b.Add("token_embd.weight", {11, 64}, DType::kQ8_0).Add("output.weight", {11, 64}, DType::kQ8_0).Add("output_norm.weight", {64});
  for (int i = 0; i < 3; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    b.Add(p + "attn_norm.weight", {64}).Add(p + "post_attention_norm.weight", {64}).Add(p + "attn_sinks.weight", {4});
    for (const auto& [name, out] : {std::pair{"attn_q", 64}, {"attn_k", 32}, {"attn_v", 32}, {"attn_output", 64}}) {
      const uint64_t rows = out;
      b.Add(p + name + ".weight", {rows, 64}, DType::kQ8_0).Add(p + name + ".bias", {rows});
    }
    b.Add(p + "ffn_gate_inp.weight", {5, 64}).Add(p + "ffn_gate_inp.bias", {5});
    b.Add(p + "ffn_gate_exps.weight", {5, 32, 64}, DType::kMXFP4).Add(p + "ffn_gate_exps.bias", {5, 32});
    b.Add(p + "ffn_up_exps.weight", {5, 32, 64}, DType::kMXFP4).Add(p + "ffn_up_exps.bias", {5, 32});
    b.Add(p + "ffn_down_exps.weight", {5, 64, 32}, DType::kMXFP4).Add(p + "ffn_down_exps.bias", {5, 64});
  }
  return b.Done();
}

// Qwen2-MoE: 2 layers, the first dense (HF) or none (GGUF), width 8, 2 heads of 4 over 1, 3 experts of 5 of which 2 run, a shared one
// of 6, 11 tokens.
inline Inventory HfQwen2Moe() {
  Builder b(FileFormat::kHuggingFace);
  b.Set("architectures", std::vector<std::string>{"Qwen2MoeForCausalLM"}).Set("model_type", std::string("qwen2_moe"));
  b.Int("num_hidden_layers", 2).Int("hidden_size", 8).Int("num_attention_heads", 2).Int("num_key_value_heads", 1);
  b.Int("intermediate_size", 12).Int("moe_intermediate_size", 5).Int("shared_expert_intermediate_size", 6).Int("num_experts", 3);
  b.Int("num_experts_per_tok", 2).Int("vocab_size", 11).Int("max_position_embeddings", 64).Int("decoder_sparse_step", 1);
  b.Set("mlp_only_layers", std::vector<int64_t>{0}).Set("tie_word_embeddings", false);
  b.Add("model.embed_tokens.weight", {11, 8}).Add("model.norm.weight", {8}).Add("lm_head.weight", {11, 8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".", mlp = p + "mlp.";
    b.Add(p + "input_layernorm.weight", {8}).Add(p + "post_attention_layernorm.weight", {8});
    b.Add(p + "self_attn.q_proj.weight", {8, 8}).Add(p + "self_attn.q_proj.bias", {8});
    b.Add(p + "self_attn.k_proj.weight", {4, 8}).Add(p + "self_attn.k_proj.bias", {4});
    b.Add(p + "self_attn.v_proj.weight", {4, 8}).Add(p + "self_attn.v_proj.bias", {4}).Add(p + "self_attn.o_proj.weight", {8, 8});
    std::vector<std::pair<std::string, uint64_t>> mlps = {{"", 12}};
    if (i == 1) {
      mlps = {{"experts.0.", 5}, {"experts.1.", 5}, {"experts.2.", 5}, {"shared_expert.", 6}};
      b.Add(mlp + "gate.weight", {3, 8}).Add(mlp + "shared_expert_gate.weight", {1, 8});
    }
    for (const auto& [name, width] : mlps) {
      b.Add(mlp + name + "gate_proj.weight", {width, 8}).Add(mlp + name + "up_proj.weight", {width, 8});
      b.Add(mlp + name + "down_proj.weight", {8, width});
    }
  }
  return b.Done();
}

inline Inventory GgufQwen2Moe() {
  Builder b(FileFormat::kGguf);
  const std::string a = "qwen2moe.";
  b.Set("general.architecture", std::string("qwen2moe")).Int(a + "block_count", 2).Int(a + "embedding_length", 8);
  b.Int(a + "attention.head_count", 2).Int(a + "attention.head_count_kv", 1).Int(a + "context_length", 64);
  b.Int(a + "feed_forward_length", 12).Int(a + "expert_feed_forward_length", 5).Int(a + "expert_shared_feed_forward_length", 6);
  b.Int(a + "expert_count", 3).Int(a + "expert_used_count", 2).Set(a + "attention.layer_norm_rms_epsilon", 1e-6);
  b.Set(a + "rope.freq_base", 1e6);
  b.Add("token_embd.weight", {11, 8}).Add("output.weight", {11, 8}).Add("output_norm.weight", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    b.Add(p + "attn_norm.weight", {8}).Add(p + "ffn_norm.weight", {8}).Add(p + "attn_output.weight", {8, 8});
    for (const auto& [name, out] : {std::pair{"attn_q", 8}, {"attn_k", 4}, {"attn_v", 4}}) {
      const uint64_t rows = out;
      b.Add(p + name + ".weight", {rows, 8}).Add(p + name + ".bias", {rows});
    }
    b.Add(p + "ffn_gate_inp.weight", {3, 8}).Add(p + "ffn_gate_inp_shexp.weight", {8});
    b.Add(p + "ffn_gate_exps.weight", {3, 5, 8})
        .Add(p + "ffn_up_exps.weight", {3, 5, 8})
        .Add(p + "ffn_down_exps.weight", {3, 8, 5});
    b.Add(p + "ffn_gate_shexp.weight", {6, 8}).Add(p + "ffn_up_shexp.weight", {6, 8}).Add(p + "ffn_down_shexp.weight", {8, 6});
  }
  return b.Done();
}

// Gemma 3: 2 layers, width 8, 2 heads of 6 over 1, feed-forward 12, 11 tokens, tied; every second layer sees all of the past.
inline Inventory HfGemma3(bool parts = false) {
  Builder b(FileFormat::kHuggingFace);
  const std::string c = parts ? "text_config." : "", t = parts ? "language_model." : "";
  b.Set("architectures", std::vector<std::string>{parts ? "Gemma3ForConditionalGeneration" : "Gemma3ForCausalLM"});
  b.Int(c + "num_hidden_layers", 2).Int(c + "hidden_size", 8).Int(c + "num_attention_heads", 2).Int(c + "num_key_value_heads", 1);
  b.Int(c + "head_dim", 6).Int(c + "intermediate_size", 12).Int(c + "vocab_size", 11).Int(c + "max_position_embeddings", 64);
  b.Int(c + "sliding_window", 4).Int(c + "sliding_window_pattern", 2).Int(c + "query_pre_attn_scalar", 16);
  b.Add(t + "model.embed_tokens.weight", {11, 8}).Add(t + "model.norm.weight", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = t + "model.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input", "post_attention", "pre_feedforward", "post_feedforward"})
      b.Add(p + norm + "_layernorm.weight", {8});
    b.Add(p + "self_attn.q_norm.weight", {6}).Add(p + "self_attn.k_norm.weight", {6}).Add(p + "self_attn.q_proj.weight", {12, 8});
    b.Add(p + "self_attn.k_proj.weight", {6, 8}).Add(p + "self_attn.v_proj.weight", {6, 8});
    b.Add(p + "self_attn.o_proj.weight", {8, 12}).Add(p + "mlp.gate_proj.weight", {12, 8});
    b.Add(p + "mlp.up_proj.weight", {12, 8}).Add(p + "mlp.down_proj.weight", {8, 12});
  }
  return b.Done();
}

inline Inventory GgufGemma3() {
  Builder b(FileFormat::kGguf);
  const std::string a = "gemma3.";
  b.Set("general.architecture", std::string("gemma3")).Int(a + "block_count", 2).Int(a + "embedding_length", 8);
  b.Int(a + "attention.head_count", 2).Int(a + "attention.head_count_kv", 1).Int(a + "attention.key_length", 6);
  b.Int(a + "attention.value_length", 6).Int(a + "context_length", 64).Int(a + "feed_forward_length", 12);
  b.Int(a + "attention.sliding_window", 4).Set(a + "attention.layer_norm_rms_epsilon", 1e-6).Set(a + "rope.freq_base", 1e6);
  b.Add("token_embd.weight", {11, 8}).Add("output_norm.weight", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"}) b.Add(p + norm + ".weight", {8});
    b.Add(p + "attn_q_norm.weight", {6}).Add(p + "attn_k_norm.weight", {6}).Add(p + "attn_q.weight", {12, 8});
    b.Add(p + "attn_k.weight", {6, 8}).Add(p + "attn_v.weight", {6, 8}).Add(p + "attn_output.weight", {8, 12});
    b.Add(p + "ffn_gate.weight", {12, 8}).Add(p + "ffn_up.weight", {12, 8}).Add(p + "ffn_down.weight", {8, 12});
  }
  return b.Done();
}

// GPT-NeoX: 2 layers, width 8, 2 heads of which a half turns, feed-forward 12, 11 tokens, untied.
inline Inventory HfGptNeox() {
  Builder b(FileFormat::kHuggingFace);
  b.Set("architectures", std::vector<std::string>{"GPTNeoXForCausalLM"}).Set("model_type", std::string("gpt_neox"));
  b.Int("num_hidden_layers", 2)
      .Int("hidden_size", 8)
      .Int("num_attention_heads", 2)
      .Int("intermediate_size", 12)
      .Int("vocab_size", 11);
  b.Int("max_position_embeddings", 64).Set("rotary_pct", 0.5).Int("rotary_emb_base", 10000).Set("layer_norm_eps", 1e-5);
  b.Set("use_parallel_residual", true).Set("tie_word_embeddings", false);
  b.Add("gpt_neox.embed_in.weight", {11, 8}).Add("embed_out.weight", {11, 8});
  b.Add("gpt_neox.final_layer_norm.weight", {8}).Add("gpt_neox.final_layer_norm.bias", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = "gpt_neox.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm.", "post_attention_layernorm."})
      b.Add(p + norm + "weight", {8}).Add(p + norm + "bias", {8});
    b.Add(p + "attention.query_key_value.weight", {24, 8}).Add(p + "attention.query_key_value.bias", {24});
    b.Add(p + "attention.dense.weight", {8, 8}).Add(p + "attention.dense.bias", {8});
    b.Add(p + "mlp.dense_h_to_4h.weight", {12, 8}).Add(p + "mlp.dense_h_to_4h.bias", {12});
    b.Add(p + "mlp.dense_4h_to_h.weight", {8, 12}).Add(p + "mlp.dense_4h_to_h.bias", {8});
    b.Add(p + "attention.bias", {1, 1, 64, 64})
        .Add(p + "attention.masked_bias", {})
        .Add(p + "attention.rotary_emb.inv_freq", {1});
  }
  return b.Done();
}

inline Inventory GgufGptNeox() {
  Builder b(FileFormat::kGguf);
  const std::string a = "gptneox.";
  b.Set("general.architecture", std::string("gptneox")).Int(a + "block_count", 2).Int(a + "embedding_length", 8);
  b.Int(a + "attention.head_count", 2).Int(a + "context_length", 64).Int(a + "feed_forward_length", 12);
  b.Int(a + "rope.dimension_count", 2).Set(a + "attention.layer_norm_epsilon", 1e-5).Set(a + "use_parallel_residual", false);
  b.Add("token_embd.weight", {11, 8}).Add("output.weight", {11, 8}).Add("output_norm.weight", {8}).Add("output_norm.bias", {8});
  for (int i = 0; i < 2; ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    for (const char* norm : {"attn_norm.", "ffn_norm."}) b.Add(p + norm + "weight", {8}).Add(p + norm + "bias", {8});
    b.Add(p + "attn_qkv.weight", {24, 8}).Add(p + "attn_qkv.bias", {24});
    b.Add(p + "attn_output.weight", {8, 8}).Add(p + "attn_output.bias", {8}).Add(p + "ffn_up.weight", {12, 8});
    b.Add(p + "ffn_up.bias", {12}).Add(p + "ffn_down.weight", {8, 12}).Add(p + "ffn_down.bias", {8});
  }
  return b.Done();
}

}  // namespace tally::synthetic
