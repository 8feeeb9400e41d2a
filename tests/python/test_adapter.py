# SPDX-License-Identifier: Apache-2.0
"""engine/python/examples/lm_eval_adapter.py on the bundled model, beside a plain computation from logits."""

import importlib.util
import os
from types import SimpleNamespace

import numpy as np
import pytest

import tally

PATH = os.path.join(os.path.dirname(__file__), "..", "..", "engine", "python", "examples", "lm_eval_adapter.py")


@pytest.fixture(scope="module")
def lm():
    spec = importlib.util.spec_from_file_location("lm_eval_adapter", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.TallyLM("demo")
    yield made
    made.model.close()


def requests(*args):
    return [SimpleNamespace(args=a) for a in args]


def logprobs(model, ids):
    """ln p of every token at every position, float64 [tokens, vocab]."""
    x = model.logits(ids).astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def plain(model, before, ids):
    """What loglikelihood is to give, from logits."""
    rows = logprobs(model, (before + ids)[:-1])[len(before) - 1:]
    return sum(rows[i, t] for i, t in enumerate(ids)), bool((rows.argmax(axis=1) == ids).all())


def same(given, wanted):
    return given[1] == wanted[1] and given[0] == pytest.approx(wanted[0], abs=1e-9, rel=1e-12)


QUESTIONS = [
    ("ROMEO:\nWhat is thy name", ["? I know", ", sir?", " the", "zzzz"]),
    ("First Citizen:\nWe are accounted poor ", ["citizens", " citizens", "the patricians good."]),  # a blank at the end
    ("KING RICHARD III:", ["\nMy lord", "\nA horse! a horse!"]),
]


def test_choices(lm):
    asked = [(context, choice) for context, choices in QUESTIONS for choice in choices]
    given = lm.loglikelihood(requests(*asked))
    encode = lm.tokenizer.encode
    for (context, choice), answer in zip(asked, given):
        before = encode(context.rstrip())
        ids = encode(context + choice)[len(before):]
        assert same(answer, plain(lm.model, before, ids)), (context, choice)


def test_greedy_continuation(lm):
    context = "ROMEO:\nWhat is"
    text = lm.generate_until(requests((context, {"max_gen_toks": 4})))[0]
    assert lm.loglikelihood(requests((context, text)))[0][1]
    assert not lm.loglikelihood(requests((context, "zz")))[0][1]


def test_empty_context(lm):
    ids = lm.tokenizer.encode("ROMEO:", False)
    given = lm.loglikelihood(requests(("", "ROMEO:")))[0]
    assert same(given, plain(lm.model, [lm.prefix_token_id], ids))


def test_continuation_without_tokens_is_refused(lm):
    """The harness's own class asserts the same: probability 1 would be wrong."""
    assert len(lm.tokenizer.encode("ab", False)) == 1
    for context, continuation in (("a", "b"), ("ROMEO:", "")):
        with pytest.raises(ValueError, match="no tokens of its own"):
            lm.loglikelihood(requests((context, continuation)))


def test_context_is_cut_on_the_left(lm):
    encode, n = lm.tokenizer.encode, lm.max_length
    context = "To be, or not to be: that is the question.\n" * 200
    before = encode(context.rstrip())
    assert len(before) > n
    ids = encode(context + "ROMEO:")[len(before):]
    whole = (before + ids)[-(n + 1):]
    assert same(lm.loglikelihood(requests((context, "ROMEO:")))[0], plain(lm.model, whole[:-len(ids)], ids))
    with pytest.raises(ValueError, match="longer than the context"):
        lm.loglikelihood(requests(("a", context)))


def test_rolling_short(lm):
    text = "First Citizen:\nBefore we proceed any further, hear me speak."
    ids = lm.tokenizer.encode(text, False)
    rows = logprobs(lm.model, [lm.prefix_token_id] + ids[:-1])
    given, empty = lm.loglikelihood_rolling(requests((text,), ("",)))
    assert given == pytest.approx(rows[np.arange(len(ids)), ids].sum(), rel=1e-12)
    assert empty == 0.0


def test_rolling_windows(lm):
    """Windows of the harness's documentation: ten tokens, a context of four."""
    text = "What say you, my lord, to this good man of Rome?"
    ids = lm.tokenizer.encode(text, False)[:10]
    assert len(ids) == 10
    windows = [([lm.prefix_token_id], ids[0:4]), ([ids[3]], ids[4:8]), (ids[5:8], ids[8:10])]
    wanted = sum(plain(lm.model, before, after)[0] for before, after in windows)
    whole, lm.max_length = lm.max_length, 4
    try:
        given = lm.loglikelihood_rolling(requests((lm.tokenizer.decode(ids),)))[0]
    finally:
        lm.max_length = whole
    assert given == pytest.approx(wanted, rel=1e-12)


def test_generate_until(lm):
    until = {"until": ["\n"], "max_gen_toks": 40}
    long = "To be, or not to be. " * 400
    given = lm.generate_until(requests(("ROMEO:", {"max_gen_toks": 24}), ("ROMEO:", until), (long, until), ("", {"max_gen_toks": 3}),
                                       ("JULIET:\n", {"until": "\n", "max_gen_toks": 40})))
    greedy = {"temperature": 0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert given[0] == str(lm.model.generate("ROMEO:", max_tokens=24, **greedy))
    assert given[1] == given[0].split("\n")[0]
    cut = lm.tokenizer.encode(long)[-(lm.max_length - 40):]
    assert given[2] == str(lm.model.generate(cut, max_tokens=40, stop="\n", **greedy))
    assert given[3] and "\n" not in given[4]
    with pytest.raises(ValueError, match="no room for a prompt"):
        lm.generate_until(requests(("a", {"max_gen_toks": 5000})))


def test_sampled_repeats_differ(lm):
    sampled = {"do_sample": True, "temperature": 1.0, "max_gen_toks": 24}
    first, second, third = lm.generate_until(requests(("ROMEO:", sampled), ("ROMEO:", sampled), ("ROMEO:", {"max_gen_toks": 24})))
    assert len({first, second, third}) == 3


def test_chat_template(lm):
    text = lm.apply_chat_template([{"role": "user", "content": "Ay?"}])
    ids = lm.tok_encode(text)
    assert ids == lm.tokenizer.apply_chat_template([{"role": "user", "content": "Ay?"}])
    assert ids.count(lm.tokenizer.bos_token_id) == 1
    begun = [{"role": "user", "content": "Ay?"}, {"role": "assistant", "content": "No, my"}]
    assert lm.apply_chat_template(begun, add_generation_prompt=False).endswith("No, my")
    assert lm.tokenizer_name.startswith("demo")
