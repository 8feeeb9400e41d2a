# SPDX-License-Identifier: Apache-2.0
"""Answers: alone, as they come, many at once, chats, held ones; what they cost; logits and what lies beneath."""

import json
import os
import subprocess

import numpy as np
import pytest

import tally

PROMPT = "ROMEO:"


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_greedy_text_is_the_argmax_of_the_logits(model):
    answer = model.generate(PROMPT, max_tokens=8, temperature=0)
    ids = model.tokens(PROMPT)
    for token in answer.tokens:
        row = model.logits(ids, last=True)
        assert row.shape == (model.info["vocab"],) and row.dtype == np.float32
        assert int(row.argmax()) == token
        ids.append(token)
    assert answer.text == model.tokenizer.decode(answer.tokens)
    assert answer.finish == "length" and str(answer) == answer.text
    # the command draws the same
    out = subprocess.run([os.environ["TALLY_BINARY"], "run", "demo", "-p", PROMPT, "-n", "8", "--temp", "0", "--json"],
                         capture_output=True, check=True, text=True)
    assert json.loads(out.stdout)["tokens"] == answer.tokens


def test_streams_and_many_give_the_same(model):
    whole = model.generate(PROMPT, max_tokens=20, seed=3)
    stream = model.stream(PROMPT, max_tokens=20, seed=3)
    with pytest.raises(ValueError):
        stream.result
    assert "".join(p.text for p in stream) == whole.text == stream.result.text
    assert stream.result.tokens == whole.tokens
    prompts = [PROMPT, "JULIET:\nO", [1, 2, 3], "The"]
    alone = [model.generate(p, max_tokens=12, seed=5).tokens for p in prompts]
    assert [g.tokens for g in model.generate_many(prompts, max_tokens=12, seed=5)] == alone
    ended = dict(model.as_completed(prompts, max_tokens=12, seed=5))
    assert [ended[i].tokens for i in range(len(prompts))] == alone
    seeded = model.generate_many([PROMPT] * 3, seeds=[1, 2, 1], max_tokens=12)
    assert seeded[0].tokens == seeded[2].tokens != seeded[1].tokens
    # more than run side by side
    many = model.generate_many([PROMPT] * 11, max_tokens=3, temperature=0)
    assert {tuple(g.tokens) for g in many} == {tuple(many[0].tokens)} and len(many) == 11


def test_options_are_followed(model):
    whole = model.generate(PROMPT, max_tokens=40, temperature=0).text
    stopped = model.generate(PROMPT, max_tokens=40, temperature=0, stop=[whole[12:18]])
    assert stopped.finish == "stop" and stopped.stop == whole[12:18] and stopped.text == whole[:whole.index(stopped.stop)]
    assert model.generate(PROMPT, max_tokens=4, temperature=0, choices=["yes", "no"]).text in ("yes", "no")
    assert model.generate(PROMPT, max_tokens=9, regex="[0-9]{3}").text.isdigit()
    person = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["age"],
              "additionalProperties": False}
    for schema in (person, json.dumps(person)):
        assert 1 <= json.loads(model.generate(PROMPT, max_tokens=40, schema=schema).text)["age"] <= 99
    banned = model.generate(PROMPT, max_tokens=1, temperature=0).tokens[0]
    assert model.generate(PROMPT, max_tokens=1, temperature=0, logit_bias={banned: -100.0}).tokens != [banned]
    assert model.generate(PROMPT, max_tokens=1, temperature=0, bad_words_ids=[[banned]]).tokens != [banned]
    assert model.generate(PROMPT, max_tokens=3, allowed_token_ids=[banned]).tokens == [banned] * 3
    assert model.generate(PROMPT, max_tokens=3, temperature=0, stop_token_ids=[banned]).tokens == []
    assert model.generate(PROMPT, max_tokens=3, temperature=0, stop_token_ids=[banned], min_tokens=1).tokens != []
    a, b = (model.generate(PROMPT, max_tokens=10, prefix_key="k", temperature=0) for _ in range(2))
    assert a.tokens == b.tokens and a.reused_tokens == 0 and b.reused_tokens == b.prompt_tokens - 1


def test_log_probabilities_are_those_of_the_logits(model):
    ids = model.tokens("To be, or not to be")
    expected = log_softmax(model.logits(ids))
    assert np.allclose(model.token_logprobs(ids), expected[np.arange(len(ids) - 1), ids[1:]], atol=1e-6)
    sum_, greedy = model.loglikelihood(ids[:3], ids[3:])
    assert np.isclose(sum_, expected[np.arange(2, len(ids) - 1), ids[3:]].sum(), atol=1e-5)
    assert greedy == bool((expected[2:-1].argmax(-1) == ids[3:]).all())
    assert model.loglikelihood(ids[:3], [int(expected[2].argmax())])[1]
    for context, continuation in (("ROMEO:", ""), ([1], [])):
        with pytest.raises(tally.BadInput, match="no tokens of its own"):
            model.loglikelihood(context, continuation)
    for token in (1024, 2**31 - 1, -1):
        with pytest.raises(tally.BadInput, match="ids of this model"):
            model.loglikelihood([1, 2], [token])
    assert model.loglikelihood([5, 6], " a") == model.loglikelihood([5, 6], model.tokenizer.encode(" a", False))
    first = model.tokenizer.bos_token_id
    assert model.loglikelihood([], ids[1:]) == model.loglikelihood([first], ids[1:])
    # what was run before is not run again, with the same result
    long = ids * 8
    model.ledger(reset=True)
    again = [model.loglikelihood(long, [token]) for token in (5, 6, 5)]
    assert again[0] == again[2] and model.ledger().phases["prefill"]["rows"] < 2 * len(long)
    assert np.isclose(again[0][0], log_softmax(model.logits(long, last=True))[5], atol=1e-6)
    answer = model.generate(ids, max_tokens=3, temperature=0, top_logprobs=2)
    assert [t.token for t in answer.logprobs] == answer.tokens
    assert np.isclose(answer.logprobs[0].logprob, expected[-1].max(), atol=1e-6)
    assert [t for t, _ in answer.logprobs[0].top] == list(np.argsort(-expected[-1], kind="stable")[:2])


def test_hidden_states_and_taps_are_what_the_layers_compute(model):
    ids = model.tokens("To be, or not to be")
    n, width = model.info["layers"], model.info["d_model"]
    states = model.hidden_states(ids)
    assert states.shape == (n + 1, len(ids), width) and states.flags["OWNDATA"] is False and states.base is not None
    raw = model.hidden_states(ids, normed=False)
    assert np.array_equal(states[:n], raw[:n]) and not np.array_equal(states[n], raw[n])
    assert np.array_equal(model.hidden_states(ids, [-1, 0]), states[[n, 0]])
    # prefixes have the states of the whole
    assert np.array_equal(model.hidden_states(ids[:4])[:, :4], states[:, :4])
    taps = model.taps(ids, ["*embed", "output_norm.*", "head.matmul"])
    first, normed, logits = taps["embedding.embed"], next(v for k, v in taps.items() if k.startswith("output_norm")), taps["head.matmul"]
    assert np.array_equal(first, states[0]) and np.array_equal(normed, states[n]) and np.array_equal(logits, model.logits(ids))


def test_experts_from_disk():
    with tally.load("demo", context=64, weights_budget=3_800_000) as small:
        assert small.info["memory"]["packed_weights"] <= 3_800_000
        answers = small.generate_many([PROMPT, "The"], max_tokens=7, temperature=0)
        ledger = small.ledger()
        read = sum(phase["bytes_from_disk"] for phase in ledger.experts.values())
        assert read == sum(phase["bytes"]["weights from disk"] for phase in ledger.phases.values()) > 0
        assert read == sum(a.cost.prefill.bytes["weights from disk"] + a.cost.decode.bytes["weights from disk"] for a in answers)
        assert [layer["layer"] for layer in ledger.experts["decode"]["layers"]] == list(range(6))
        assert sum(layer["misses"] for layer in ledger.experts["decode"]["layers"]) == ledger.experts["decode"]["misses"]
    with tally.load("demo", context=64) as whole:
        assert [a.text for a in whole.generate_many([PROMPT, "The"], max_tokens=7, temperature=0)] == [a.text for a in answers]
        assert whole.ledger().experts == {}


def test_costs_add_up_to_the_ledger(model):
    model.ledger(reset=True)
    answers = model.generate_many([PROMPT, "JULIET:\nO", "The"], max_tokens=7, seed=1)
    ledger = model.ledger()
    assert sum(a.cost.flops for a in answers) == ledger.flops > 0
    assert sum(a.cost.prefill.rows for a in answers) == ledger.phases["prefill"]["rows"]
    for kind in ("weights stored", "KV read", "KV written"):
        booked = sum(phase["bytes"][kind] for phase in ledger.phases.values())
        assert sum(a.cost.prefill.bytes[kind] + a.cost.decode.bytes[kind] for a in answers) == booked > 0
    assert sum(site["flops"] for site in ledger.sites) == ledger.flops
    assert answers[0].cost.flops_per_token == answers[0].cost.decode.flops / 6
    model.ledger(reset=True)
    assert model.ledger().flops == 0


def test_chats(model):
    first = model.chat("How camest thou hither?", max_tokens=20)
    assert first.content and first.message["role"] == "assistant" and first.tool_calls == []
    messages = [{"role": "user", "content": "How camest thou hither?"}, first.message, {"role": "user", "content": [
        {"type": "text", "text": "And then?"}]}]
    second = model.chat(messages, max_tokens=5)
    assert second.reused_tokens > 0
    assert "".join(p.text for p in model.stream_chat(messages, max_tokens=5) if p.kind == "content") == second.content
    prompt = model.tokenizer.apply_chat_template(messages, tokenize=False)
    assert "How camest thou hither?" in prompt and prompt.index("And then?") > prompt.index(first.content)
    assert model.tokenizer.decode(model.tokenizer.apply_chat_template(messages)) == prompt
    assert json.loads(model.chat("?", schema={"enum": [1, 2]}, max_tokens=20).content) in (1, 2)
    begun = messages + [{"role": "assistant", "content": "Why, then, my"}]
    assert model.tokenizer.apply_chat_template(begun, continue_final_message=True, tokenize=False).endswith("Why, then, my")
    rest = model.chat(begun, continue_final_message=True, max_tokens=5, temperature=0).content
    assert rest and not rest.startswith("Why") and rest != model.chat(begun, max_tokens=5, temperature=0).content
    with pytest.raises(tally.BadInput, match="only an assistant's message"):
        model.chat(messages, continue_final_message=True)
    for bad in ([{"content": "x"}], [{"role": "user", "content": [{"type": "image_url"}]}], [{"role": "user", "text": "x"}]):
        with pytest.raises(tally.BadInput):
            model.chat(bad)


QWEN = """{%- if tools %}<|im_start|>system
# Tools

<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>

For each function call, return a json object within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_tools_are_called_as_they_must(model):
    tool = {"type": "function", "function": {"name": "set_age", "parameters": {
        "type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["age"],
        "additionalProperties": False}}}
    for choice in ("required", "set_age", {"type": "function", "function": {"name": "set_age"}}):
        answer = model.chat("?", tools=[tool], tool_choice=choice, template=QWEN, max_tokens=100, parallel_tool_calls=False)
        call = answer.tool_calls[0]
        assert call.name == "set_age" and 1 <= call.parsed()["age"] <= 9 and call.id.startswith("call_")
        assert answer.message["tool_calls"][0]["function"]["name"] == "set_age"
        history = [{"role": "user", "content": "?"}, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "done"}]
        model.chat(history, tools=[tool], template=QWEN, max_tokens=3)
    assert not model.chat("?", tools=[tool], tool_choice="none", template=QWEN, max_tokens=8).tool_calls
    with pytest.raises(tally.BadInput, match="tool_choice"):
        model.chat("?", tools=[tool], tool_choice="other", template=QWEN)


def test_errors_are_one_line_each(model, sparse, tmp_path):
    cases = [
        (tally.BadInput, "No such file", lambda: tally.load("/nowhere/model.gguf")),
        (tally.BadInput, "tally.count", lambda: tally.load("gpt-oss-20b")),
        (tally.BadInput, "", lambda: model.generate([])),
        (tally.BadInput, "ids of this model", lambda: model.generate([10**6])),
        (tally.BadInput, "temperature", lambda: model.generate("x", temperature=float("nan"))),
        (tally.BadInput, "kv", lambda: tally.load("demo", kv="f8")),
        (tally.BadInput, "only one", lambda: model.generate("x", regex="a", choices=["b"])),
        (tally.BadInput, "out of range", lambda: model.generate("x", top_k=2**40)),
        (tally.BadInput, "UTF-8", lambda: model.generate("\ud800")),
        (tally.BadInput, "tokenizer", lambda: sparse.generate("x")),
        (tally.BadInput, "tokenizer", lambda: sparse.chat("x")),
        (TypeError, "temprature", lambda: model.generate("x", temprature=1)),
        (TypeError, "top_k", lambda: model.generate("x", top_k="40")),
        (TypeError, "", lambda: model.logits([1.5])),
        (tally.NoRoom, "", lambda: tally.load("demo", context=512, sequences=2**20)),
    ]
    for kind, words, call in cases:
        with pytest.raises(kind, match=words or None) as raised:
            call()
        assert "\n" not in str(raised.value)
        if kind is tally.BadInput:
            assert isinstance(raised.value, ValueError) and isinstance(raised.value, tally.Error)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(tally.BadInput, match="broken.gguf"):
        tally.load(broken)
    with tally.load("demo", context=64) as short:
        pass
    for call in (lambda: short.generate("x"), lambda: short.logits("x"), lambda: short.chat("x")):
        with pytest.raises(tally.BadInput, match="closed"):
            call()
    with pytest.raises(tally.BadInput, match="closed"):
        short.tokenizer.encode("x")


def test_models_without_a_tokenizer_take_and_give_ids(sparse):
    answer = sparse.generate([1, 2, 3], max_tokens=4, temperature=0)
    assert len(answer.tokens) == 4 and answer.text == ""
    assert sparse.logits(np.array([1, 2, 3])).shape == (3, 512)
    assert answer.cost.parameters_active == sparse.info["parameters"]["active_all"]
    assert sum(answer.cost.to_dict()["experts_touched"].values()) >= 2 * 4
