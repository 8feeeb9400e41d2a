# SPDX-License-Identifier: Apache-2.0
import json

import pytest

import tally


@pytest.fixture(scope="session")
def model():
    with tally.load("demo", threads=2, context=512) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def sparse(tmp_path_factory):
    """A mixture of experts with random weights and no tokenizer."""
    folder = tmp_path_factory.mktemp("sparse")
    configuration = {
        "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": 64, "vocab_size": 512, "num_experts": 8, "num_experts_per_tok": 2,
        "norm_topk_prob": False, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(configuration))
    path = str(folder / "cut.gguf")
    tally.synth(str(folder / "config.json"), path)
    with tally.load(path, threads=2, context=64) as loaded:
        yield loaded
