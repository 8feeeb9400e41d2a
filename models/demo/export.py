#!/usr/bin/env python3
"""Writes a Hugging Face directory of the trained demo model: config.json, generation_config.json, tokenizer.json,
tokenizer_config.json, model.safetensors (experts MXFP4 as gpt-oss stores them, the rest BF16).

usage: export.py OUT_DIR/final.pt HF_DIR
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


def main():
    checkpoint, out = sys.argv[1:]
    saved = torch.load(checkpoint)
    bpe, config, weights = Bpe(saved["merges"]), saved["config"], saved["average"]
    os.makedirs(out, exist_ok=True)

    def write(name, text):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(text + "\n")

    write("config.json", json.dumps(config, indent=2, sort_keys=True))
    write("generation_config.json", json.dumps({"bos_token_id": bpe.end, "do_sample": True, "eos_token_id": [bpe.end],
                                                "pad_token_id": bpe.end, "temperature": 0.8, "top_p": 0.95}, indent=2))
    write("tokenizer.json", bpe.to_json())
    write("tokenizer_config.json", json.dumps({
        "add_prefix_space": False, "bos_token": END, "clean_up_tokenization_spaces": False, "eos_token": END, "pad_token": END,
        "model_max_length": config["max_position_embeddings"], "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2))
    named = tensors(weights)
    write_safetensors(os.path.join(out, "model.safetensors"), named)

    total = sum(w.numel() for w in weights.values())
    one = sum(w[0].numel() for n, w in weights.items() if ".experts." in n)  # one expert of every layer, with its biases
    idle = one * (config["num_local_experts"] - config["num_experts_per_tok"])
    table = weights["model.embed_tokens.weight"].numel()
    blocks = sum(t.numel() for t in named.values() if t.dtype == torch.uint8)
    rest = sum(t.numel() * (2 if t.dim() == 2 and "bias" not in n and "router" not in n else 4)
               for n, t in named.items() if t.dtype == torch.bfloat16)
    print(f"parameters: {total} in all; active per token {total - idle} (embedding counted), {total - idle - table} (not counted)")
    print(f"bytes: {blocks} MXFP4 with scales; as GGUF (matrices BF16, the small rest F32) {blocks + rest} and the vocabulary")


if __name__ == "__main__":
    main()
