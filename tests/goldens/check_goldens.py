#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the golden cases of Qwen2-MoE, GPT-NeoX and Gemma 3 against second sources, and measures what bugs would move.

usage: check_goldens.py graphs              the cases, recomputed by second_source.py from their GGUF form
       check_goldens.py fixtures DIR        reference.py on DIR/FAMILY/{config.json, model.safetensors, logits.json}, whose float64
                                            logits Hugging Face transformers computed
       check_goldens.py mutations           one bug at a time: how far it moves a logit, in tolerances of the case too
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

import make_gguf
import reference
import second_source
from checkpoint_io import read_checkpoint, read_gguf, read_safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ["moe/qwen2moe-a-bf16-top2of4-shared", "moe/qwen2moe-b-f32-mixed", "gptneox/gptneox-a-f32-parallel-pct25",
         "gptneox/gptneox-b-bf16-sequential", "gemma/gemma3-a-bf16-pattern6", "gemma/gemma3-b-f32-scaled-odd",
         "gemma/gemma3-c-bf16-scaled-gguf"]


class Case:
    def __init__(self, name):
        self.directory = os.path.join(HERE, name)
        self.config, self.weights = read_checkpoint(self.directory)
        self.golden = read_safetensors(self.directory + "/golden.safetensors")
        with open(self.directory + "/golden.json") as f:
            self.atol = json.load(f)["suggested_logits_atol"]
        self.prompts = [(self.golden[f"p{j}.ids"].tolist(), self.golden[f"p{j}.logits"]) for j in (0, 1)]

    def gguf(self):
        """model.gguf; where GGUF cannot say all of the config, what it would hold if it could."""
        if make_gguf.inexpressible(self.config) is None:
            return read_gguf(self.directory + "/model.gguf")
        with tempfile.TemporaryDirectory() as directory:
            make_gguf.convert(self.config, self.weights, directory + "/model.gguf")
            return read_gguf(directory + "/model.gguf")


def unsaid(c):
    """What second_source.py must be told because GGUF has no key for it."""
    if c["model_type"] == "qwen2_moe":
        return dict(renormalise=c["norm_topk_prob"])
    if c["model_type"] == "gemma3_text":
        return dict(attention_scale=c["query_pre_attn_scalar"] ** -0.5, local_base=c["rope_local_base_freq"],
                    slides=[reference.gemma_slides(c, i) for i in range(c["num_hidden_layers"])])
    return {}


def check_graphs():
    for name in CASES:
        case = Case(name)
        keys, tensors = case.gguf()
        options = unsaid(case.config) if make_gguf.inexpressible(case.config) else {}
        worst = 0
        for ids, want in case.prompts:
            got = second_source.run(keys, tensors, ids, **options)
            worst = max(worst, np.abs(got - want.numpy()).max())
        print(f"{name:42} {'GGUF' if not options else 'GGUF + ' + ', '.join(options):46} max |difference| {worst:.1e}  "
              f"of max |logit| {max(float(w.abs().max()) for _, w in case.prompts):.1f}")


def check_fixtures(folder):
    for family in ("gptneox", "qwen2", "qwen3_moe", "olmoe", "gemma2"):
        config, weights = read_checkpoint(os.path.join(folder, family))
        with open(os.path.join(folder, family, "logits.json")) as f:
            want = json.load(f)
        worst = largest = 0
        for ids, logits in zip(want["sequences"], want["logits"]):
            logits = torch.tensor(logits, dtype=torch.float64)
            got = reference.forward(config, reference.Params(weights, torch.float64), ids)
            worst, largest = max(worst, float((got - logits).abs().max())), max(largest, float(logits.abs().max()))
        print(f"{family:12} max |difference| {worst:.1e}  of max |logit| {largest:.3f}")


# Bugs. A bug is (description, changes of the config, changes of the weights, replacements in reference.py), the changes of the
# config and the replacements given as they are or as a function of the config.


def bug(what, config=None, weights=None, replace=None, **functions):
    return what, config or {}, weights, replace or functions


def rope_adjacent(x, tables):
    cos, sin = tables[0][:, None, :], tables[1][:, None, :]
    dim = 2 * cos.shape[-1]
    a, b = x[..., 0:dim:2], x[..., 1:dim:2]
    return torch.cat([torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2), x[..., dim:]], -1)


def rope_last(x, tables):
    dim = 2 * tables[0].shape[-1]
    d = x.shape[-1]
    return torch.cat([x[..., :d - dim], ROPE(x[..., d - dim:], tables)], -1)


def whole_head(c):
    d = c["hidden_size"] // c["num_attention_heads"]
    return lambda dim, base, scaling, dtype, max_positions: (1.0 / base ** (torch.arange(0, dim, 2).to(dtype) / d), 1.0)


def scaled_local_tables(c, slides, n, dtype):
    base = c["rope_local_base_freq"] if slides else c["rope_theta"]
    return reference.rope_tables(n, c["head_dim"], base, c["rope_scaling"], dtype)


def without(*endings):
    def change(weights):
        return {name: torch.zeros_like(t) if name.endswith(endings) else t for name, t in weights.items()}
    return change


def minus_one(ending):
    def change(weights):
        return {name: t.float() - 1 if name.endswith(ending) else t for name, t in weights.items()}
    return change


ROPE, PLAIN_RMS = reference.rope, reference.rms_norm
COMMON = [
    bug("rope of adjacent pairs", rope=rope_adjacent),
    bug("no rope", rope=lambda x, tables: x),
]
GROUPED = [bug("kv head = h % kv_heads", kv_head_of=lambda heads, kv_heads: torch.arange(heads) % kv_heads)]
QWEN2MOE = COMMON + GROUPED + [
    bug("no sigmoid of the shared gate", shared_expert_gate=lambda t, w: reference.linear(t, w)),
    bug("shared gate left out (weight 1)", shared_expert_gate=lambda t, w: torch.ones(len(t), 1, dtype=t.dtype)),
    bug("shared expert left out", shared_expert_gate=lambda t, w: torch.zeros(len(t), 1, dtype=t.dtype)),
    bug("norm_topk_prob read the wrong way round", lambda c: dict(norm_topk_prob=not c["norm_topk_prob"])),
    bug("no bias on q, k, v", weights=without("_proj.bias")),
    bug("no bias on v", weights=without("v_proj.bias")),
    bug("window used although use_sliding_window is false", dict(use_sliding_window=True)),
    bug("one expert too few", lambda c: dict(num_experts_per_tok=c["num_experts_per_tok"] - 1)),
]
GPTNEOX = COMMON + [
    bug("parallel and sequential residual swapped", lambda c: dict(use_parallel_residual=not c["use_parallel_residual"])),
    bug("rotary_pct ignored (1; .25 where it is 1)", lambda c: dict(rotary_pct=1.25 - c["rotary_pct"])),
    bug("frequencies of the whole head, the first ones used", replace=lambda c: dict(inverse_frequencies=whole_head(c))),
    bug("rope of the last dimensions of the head", rope=rope_last),
    bug("qkv rows read as [q; k; v]", split_qkv=lambda t, heads, d: t.view(-1, 3, heads, d).unbind(1)),
    bug("tanh in place of erf GELU", NEOX_ACTIVATIONS={"gelu": "gelu_tanh"}),
    bug("no bias on q, k, v", weights=without("query_key_value.bias")),
    bug("no bias on dense", weights=without("attention.dense.bias")),
    bug("no bias in the MLP", weights=without("h_to_4h.bias", "4h_to_h.bias")),
    bug("no bias of the norms", weights=without("norm.bias")),
    bug("RMSNorm in place of LayerNorm", layer_norm=lambda x, w, b, eps: PLAIN_RMS(x, w, eps) + b),
    bug("one norm for both branches", weights=lambda weights: {
        name: weights[name.replace("post_attention_layernorm", "input_layernorm")] for name in weights}),
]
GEMMA3 = COMMON + GROUPED + [
    bug("w in place of 1 + w, all norms", gemma_norm=lambda x, w, eps: PLAIN_RMS(x, w, eps)),
    bug("w in place of 1 + w, norms of q and k", weights=minus_one(("q_norm.weight", "k_norm.weight"))),
    bug("no embedding scale", gemma_embedding_scale=lambda c, dtype: 1.0),
    bug("embedding scale rounded to bf16", gemma_embedding_scale=lambda c, dtype:
        torch.tensor(c["hidden_size"] ** 0.5).bfloat16().to(dtype)),
    bug("no post norms", gemma_post_norm=lambda x, w, eps: x),
    bug("no norm of q and k", gemma_qk_norm=lambda x, w, eps: x),
    bug("attention scale from head_dim", lambda c: dict(query_pre_attn_scalar=c["head_dim"])),
    bug("local theta ignored (the global one everywhere)", lambda c: dict(rope_local_base_freq=c["rope_theta"])),
    bug("global theta ignored (the local one everywhere)", lambda c: dict(rope_theta=c["rope_local_base_freq"])),
    bug("linear scaling left out", dict(rope_scaling=None)),
    bug("linear scaling on local layers too", gemma_tables=scaled_local_tables),
    bug("window one too wide", lambda c: dict(sliding_window=c["sliding_window"] + 1)),
    bug("no window", dict(sliding_window=None)),
    bug("pattern one layer early", lambda c: dict(layer_types=[
        "sliding_attention" if reference.gemma_slides(c, (i + 1) % c["num_hidden_layers"]) else "full_attention"
        for i in range(c["num_hidden_layers"])])),
    bug("erf in place of tanh GELU", gelu_tanh=reference.gelu_erf),
    bug("head tied although it is not", dict(tie_word_embeddings=True)),
]
BUGS = {"qwen2_moe": QWEN2MOE, "gpt_neox": GPTNEOX, "gemma3_text": GEMMA3}


def check_mutations():
    for name in CASES:
        case = Case(name)
        for what, config, weights, functions in BUGS[case.config["model_type"]]:
            config, functions = (v(case.config) if callable(v) else v for v in (config, functions))
            c = dict(case.config, **config)
            params = reference.Params(weights(case.weights) if weights else case.weights, torch.float32)
            with mock.patch.multiple(reference, **functions) if functions else contextlib.nullcontext():
                got = [reference.forward(c, params, ids) for ids, _ in case.prompts]
            moved = max(float((g - want).abs().max()) for g, (_, want) in zip(got, case.prompts))
            changed = sum(int((g.argmax(-1) != want.argmax(-1)).sum()) for g, (_, want) in zip(got, case.prompts))
            print(f"{name.split('/')[1]:32} {what:50} {moved:8.1e} = {moved / case.atol:8.1f} tolerances, argmax changed "
                  f"{changed:2}/{sum(len(ids) for ids, _ in case.prompts)}")


def main():
    torch.set_grad_enabled(False)
    if sys.argv[1:] == ["graphs"]:
        check_graphs()
    elif sys.argv[1:2] == ["fixtures"] and len(sys.argv) == 3:
        check_fixtures(sys.argv[2])
    elif sys.argv[1:] == ["mutations"]:
        check_mutations()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
