#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the trained demo model twice, the same values in both:

HF_DIR     config.json, generation_config.json, chat_template.jinja, tokenizer.json, tokenizer_config.json, model.safetensors
           (experts MXFP4 as gpt-oss stores them, the rest BF16)
OUT.gguf   GGUF v3 with llama.cpp's names (experts MXFP4, other matrices BF16, router, norms, biases and sinks F32)

usage: export.py OUT_DIR/final.pt HF_DIR OUT.gguf
"""

import json
import os
import struct
import sys

import torch

import model
from bpe import END, Bpe


def tensors(weights):
    """Hugging Face name -> tensor, bfloat16 or uint8."""
    out = {}
    for name, w in weights.items():
        if "gate_up_proj" in name:  # rows gate, up, gate, up, ...; biases too
            half = w.shape[1] // 2
            w = torch.stack((w[:, :half], w[:, half:]), 2).flatten(1, 2)
        if model.is_expert(name):
            codes, exponents = model.mxfp4(w)
            out[name + "_blocks"] = codes[..., 0::2] | (codes[..., 1::2] << 4)  # element 2j in the low half
            out[name + "_scales"] = (exponents + 127).byte()
        else:
            out[name] = w.bfloat16()
    return out


def write_safetensors(path, named):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, t in named.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": {torch.bfloat16: "BF16", torch.uint8: "U8"}[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + size]}
        at += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for t in named.values():
            f.write((t.view(torch.int16) if t.dtype == torch.bfloat16 else t).contiguous().numpy().tobytes())


# GGUF v3 (ggml/docs/gguf.md): names and layouts of gpt-oss as llama.cpp converts it.

GGUF_TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
GGUF_LAYER = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
    "mlp.experts.down_proj": "ffn_down_exps.weight", "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    **{f"self_attn.{a}_proj.{kind}": f"attn_{b}.{kind}"
       for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")) for kind in ("weight", "bias")}}
TYPES = {"F32": 0, "BF16": 30, "MXFP4": 39}
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def gguf_tensors(weights):
    """-> name, type, shape (outermost first), bytes."""
    for name, w in weights.items():
        w = w.detach()
        parts = name.split(".", 3)
        if parts[1] == "layers":
            layer, rest = f"blk.{parts[2]}.", parts[3]
            if "gate_up_proj" in rest:  # rows: first all of the gate, then all of up
                kind = "bias" if rest.endswith("_bias") else "weight"
                both = [(f"{layer}ffn_{which}_exps.{kind}", half) for which, half in zip(("gate", "up"), w.chunk(2, 1))]
            else:
                both = [(layer + GGUF_LAYER[rest], w)]
        else:
            both = [(GGUF_TOP[name], w)]
        for to, t in both:
            if model.is_expert(name):  # a block: the exponent, then 16 bytes: element j low, element j + 16 high
                codes, exponents = model.mxfp4(t)
                blocks = torch.cat(((exponents + 127).byte()[..., None], codes[..., :16] | (codes[..., 16:] << 4)), -1)
                yield to, "MXFP4", t.shape, blocks.numpy().tobytes()
            elif t.dim() == 2 and "bias" not in name and "router" not in name:
                yield to, "BF16", t.shape, t.bfloat16().view(torch.int16).numpy().tobytes()
            else:  # the values of the other file, which are bfloat16
                yield to, "F32", t.shape, t.bfloat16().float().numpy().tobytes()

# How `tally chat` writes a conversation for it: as a play. Both sides have a name, speeches stand apart by an empty line, and so an answer
# ends where an empty line comes: no token does, since the text that was learnt has none between speeches.
CHAT_TEMPLATE = """{#- A play: the user is `user`, the model `speaker`; a speech ends with an empty line (the stop string). -#}
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{{ message.content | trim + '\\n\\n' }}
{%- else -%}
{{ (speaker | default('ROMEO') if message.role == 'assistant' else user | default('JULIET')) + ':\\n' }}
{{- message.content | trim + '\\n\\n' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ speaker | default('ROMEO') + ':\\n' }}{%- endif -%}
"""
STOP_STRINGS = ["\n\n"]


def gguf_metadata(c, bpe):
    """-> key, type, value; of an array the value is (type of its elements, elements)."""
    arch, rope = "gpt-oss.", c["rope_scaling"]
    yield "general.architecture", STRING, "gpt-oss"
    yield "general.name", STRING, "Tally demo"
    yield "general.license", STRING, "public domain text: Shakespeare"
    for key, value in (("block_count", c["num_hidden_layers"]), ("context_length", c["max_position_embeddings"]),
                       ("embedding_length", c["hidden_size"]), ("feed_forward_length", c["intermediate_size"]),
                       ("attention.head_count", c["num_attention_heads"]), ("attention.head_count_kv", c["num_key_value_heads"]),
                       ("attention.key_length", c["head_dim"]), ("attention.value_length", c["head_dim"]),
                       ("attention.sliding_window", c["sliding_window"]), ("expert_count", c["num_local_experts"]),
                       ("expert_used_count", c["num_experts_per_tok"]), ("expert_feed_forward_length", c["intermediate_size"]),
                       ("vocab_size", c["vocab_size"]), ("rope.dimension_count", c["head_dim"]),
                       ("rope.scaling.original_context_length", rope["original_max_position_embeddings"])):
        yield arch + key, U32, value
    for key, value in (("attention.layer_norm_rms_epsilon", c["rms_norm_eps"]), ("rope.freq_base", c["rope_theta"]),
                       ("rope.scaling.factor", rope["factor"]), ("rope.scaling.yarn_beta_fast", rope["beta_fast"]),
                       ("rope.scaling.yarn_beta_slow", rope["beta_slow"])):
        yield arch + key, F32, value
    yield arch + "rope.scaling.type", STRING, "yarn"
    yield "tokenizer.ggml.model", STRING, "gpt2"
    yield "tokenizer.ggml.pre", STRING, "gpt-4o"  # o200k's expression
    yield "tokenizer.ggml.tokens", ARRAY, (STRING, bpe.tokens)
    yield "tokenizer.ggml.token_type", ARRAY, (I32, [3 if i == bpe.end else 1 for i in range(len(bpe.tokens))])
    yield "tokenizer.ggml.merges", ARRAY, (STRING, [f"{a} {b}" for a, b in bpe.merges])
    for key in ("bos", "eos", "padding"):
        yield f"tokenizer.ggml.{key}_token_id", U32, bpe.end
    yield "tokenizer.ggml.add_bos_token", BOOL, True
    yield "tokenizer.chat_template", STRING, CHAT_TEMPLATE
    yield "tally.chat.stop_strings", ARRAY, (STRING, STOP_STRINGS)  # GGUF has no key of its own for them


def write_gguf(path, metadata, named, alignment=32):
    def string(s):
        data = s.encode()
        return struct.pack("<Q", len(data)) + data

    def value(kind, v):
        if kind == STRING:
            return string(v)
        if kind == ARRAY:
            return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
        return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)

    head = b"GGUF" + struct.pack("<IQQ", 3, len(named), len(metadata))
    head += b"".join(string(key) + struct.pack("<I", kind) + value(kind, v) for key, kind, v in metadata)
    at = 0
    for name, kind, shape, data in named:
        head += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[kind], at)
        at += len(data) + -len(data) % alignment
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % alignment))
        for *_, data in named:
            f.write(data + bytes(-len(data) % alignment))


def main():
    checkpoint, out, gguf = sys.argv[1:]
    saved = torch.load(checkpoint)
    bpe, config, weights = Bpe(saved["merges"]), saved["config"], saved["average"]
    os.makedirs(out, exist_ok=True)

    def write(name, text):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(text + "\n")

    write("config.json", json.dumps(config, indent=2, sort_keys=True))
    write("generation_config.json", json.dumps({"bos_token_id": bpe.end, "do_sample": True, "eos_token_id": [bpe.end],
                                                "pad_token_id": bpe.end, "stop_strings": STOP_STRINGS, "temperature": 0.8,
                                                "top_p": 0.95}, indent=2))
    write("tokenizer.json", bpe.to_json())
    write("chat_template.jinja", CHAT_TEMPLATE.rstrip("\n"))
    write("tokenizer_config.json", json.dumps({
        "add_prefix_space": False, "bos_token": END, "clean_up_tokenization_spaces": False, "eos_token": END, "pad_token": END,
        "model_max_length": config["max_position_embeddings"], "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2))
    named = tensors(weights)
    write_safetensors(os.path.join(out, "model.safetensors"), named)

    write_gguf(gguf, list(gguf_metadata(config, bpe)), list(gguf_tensors(weights)))
    print(f"{gguf}: {os.path.getsize(gguf)} bytes")


if __name__ == "__main__":
    main()
