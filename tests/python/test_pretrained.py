# SPDX-License-Identifier: Apache-2.0
"""The calls that people know from transformers."""

import numpy as np
import pytest

import tally


@pytest.fixture(scope="module")
def pretrained():
    loaded = tally.from_pretrained("demo", threads=2, context=256)
    yield loaded
    loaded.close()


def test_generate_takes_and_gives_ids(pretrained):
    tokenizer = pretrained.tokenizer
    ids = tokenizer("ROMEO:")["input_ids"]
    out = pretrained.generate(np.array([ids]), max_new_tokens=6)
    assert out.dtype == np.int64 and out.shape == (1, len(ids) + 6) and list(out[0, :len(ids)]) == ids
    assert list(out[0, len(ids):]) == pretrained.model.generate(ids, max_tokens=6, temperature=0).tokens
    assert tokenizer.decode(out[0]).startswith(tokenizer.decode(ids))
    rows = tokenizer(["ROMEO:", "O Juliet"])["input_ids"]
    both = pretrained.generate(rows, max_new_tokens=3)
    assert both.shape[0] == 2 and list(both[0][:len(rows[0])]) == rows[0]
    new = [pretrained.generate([row], max_new_tokens=3)[0, len(row):] for row in rows]
    for left in (False, True):
        ids, mask = np.zeros((2, 2, max(map(len, rows))), dtype=int)
        for i, row in enumerate(rows):
            place = slice(-len(row), None) if left else slice(len(row))
            ids[i, place], mask[i, place] = row, 1
        out = pretrained.generate(ids, attention_mask=mask, max_new_tokens=3)
        assert np.array_equal(out[:, :ids.shape[1]], ids) and np.array_equal(out[:, ids.shape[1]:], new)
    with pytest.raises(tally.BadInput, match="shape"):
        pretrained.generate(ids, attention_mask=mask[:, :1])
    assert not np.array_equal(pretrained.generate(ids, max_new_tokens=12, do_sample=True, seed=1, top_k=0),
                              pretrained.generate(ids, max_new_tokens=12, do_sample=True, seed=2, top_k=0))


def test_tensors_give_tensors(pretrained):
    class Tensor(np.ndarray):
        def new_tensor(self, values):
            return np.asarray(values).view(Tensor)

    ids = np.array([pretrained.tokenizer.encode("ROMEO:")]).view(Tensor)
    assert isinstance(pretrained.generate(ids, max_new_tokens=2), Tensor)


def test_the_forward_pass(pretrained):
    ids = [pretrained.tokenizer.encode("ROMEO:"), [1, 2, 3]]
    out = pretrained(ids, output_hidden_states=True)
    assert out.logits.shape == (2, 3, pretrained.config.vocab_size)
    assert len(out.hidden_states) == pretrained.config.num_hidden_layers + 1 and out.hidden_states[0].shape == (2, 3, pretrained.config.hidden_size)
    assert np.array_equal(out.logits[1], pretrained.model.logits([1, 2, 3]))
    with pytest.raises(tally.BadInput):
        pretrained([[1], [1, 2]])


def test_the_tokenizer(pretrained):
    t = pretrained.tokenizer
    ids = t.encode("The ledger, ünïcödé", add_special_tokens=False)
    assert t.encode("The ledger, ünïcödé") == [t.bos_token_id, *ids]
    assert t.decode(ids) == "The ledger, ünïcödé" and len(t) == t.vocab_size == pretrained.config.vocab_size
    assert b"".join(t.token_bytes(i) for i in ids).decode() == "The ledger, ünïcödé"
    assert t.eos_token_id in t.eos_token_ids and len(t.convert_ids_to_tokens(ids)) == len(ids)
    end = t.eos_token_id
    assert t.decode([ids[0], end], skip_special_tokens=True) == t.decode(ids[0]) != t.decode([ids[0], end])
    assert t.encode(t.decode([end]), parse_special=True)[-1] == end
