# SPDX-License-Identifier: Apache-2.0
"""Counts, fits, audits and measured runs as Python has them."""

import json
import os
import pickle
import subprocess
import xml.etree.ElementTree

import pytest

import tally


def command(*arguments):
    said = subprocess.run([os.environ["TALLY_BINARY"], *arguments, "--json"], capture_output=True, check=True, text=True).stdout
    document = json.loads(said)
    assert document.pop("tally").keys() == {"version", "commit", "date"}
    return document


def test_counts_are_those_of_the_command():
    count = tally.count("gpt-oss-20b", context=8192, batch=4)
    # arXiv 2508.10925, table 1, to the digits that the card prints
    assert count.total == 20_914_757_184 and count.active_head == 3_608_307_264
    assert count.to_dict() == command("count", "gpt-oss-20b", "--ctx", "8192", "--batch", "4")["models"][0]
    assert count.context == 8192 and count.batch == 4 and count.stored_as == "MXFP4 + BF16"
    assert count.decode_flops["matmul_causal"] < count.decode_flops["matmul_full_square"]
    assert any(c["convention"] == "active(head)" and c["holds"] == "rounded" for claim in count.claims for c in claim["conventions"])
    rows = count.rows()
    assert {"model", "context", "prompt", "batch", "kv", "table", "row", "figure", "value"} == set(rows[0])
    assert any(row["value"] == count.total for row in rows)
    assert repr(count).startswith("gpt-oss-20b: 20,914,757,184 parameters") and "--full" not in repr(count)


def test_notebooks_show_tables_and_pictures():
    count = tally.count("gpt2")
    markup = count._repr_html_()
    assert "<table>" in markup and "124,439,808" in markup and "<svg" in markup
    for name, svg in count.figures():
        assert xml.etree.ElementTree.fromstring(svg).tag.endswith("svg"), name
    tables = count.tables()
    assert tables and all(len(row) == len(t.columns) for t in tables for row in t.rows)
    assert set(map(len, tables[0].to_dict().values())) == {len(tables[0].rows)}
    assert "<table" in tables[0]._repr_html_() and tables[0].title in repr(tables[0])


def test_tables_have_numbers_and_copies_are_equal():
    count = tally.count("gpt2", context=64)
    assert 124_439_808 in [value for table in count.tables() for row in table.values for value in row]
    assert pickle.loads(pickle.dumps(count)).to_dict() == count.to_dict()
    partial = next(name for name in tally.models(runs=False) if any(row["value"] is None for row in tally.count(name).rows()))
    assert "partial" in tally.count(partial)._repr_html_()


def test_pandas_where_it_is_there():
    pandas = pytest.importorskip("pandas")
    frame = tally.count("gpt2").to_pandas()
    assert isinstance(frame, pandas.DataFrame) and (frame.value == 124_439_808).any()
    assert isinstance(tally.count("gpt2").tables()[0].to_pandas(), pandas.DataFrame)
    assert isinstance(tally.fit("gpt2", machine="ram=16GiB,read=50GB/s").to_pandas(), pandas.DataFrame)


def test_a_dict_is_counted():
    configuration = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                     "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
                     "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    count = tally.config(configuration, name="small")
    E, L, V, F, kv = 64, 2, 1000, 128, 32
    assert count.total == 2 * V * E + L * (2 * E * E + 2 * E * kv + 3 * E * F + 2 * E) + E
    assert count.name == "small" and repr(count).startswith("small:")
    del configuration["hidden_size"]
    with pytest.raises(tally.BadInput, match="^small.*hidden_size"):
        tally.config(configuration, name="small")
    with pytest.raises(tally.BadInput, match="n_layer"):
        tally.count("gpt2", settings={"n_layer": 3})
    assert tally.count("gpt2", settings={"n_layers": 1}).total < tally.count("gpt2").total
    with pytest.raises(tally.BadInput):
        tally.count("no-such-model")


def test_fits():
    fit = tally.fit("gpt-oss-20b", "Qwen3-8B", machine="ram=16GiB,read=50GB/s,int8=1T,bf16=500G,f32=250G,threads=8")
    assert fit.to_dict() == command("fit", "gpt-oss-20b", "Qwen3-8B", "--machine",
                                    "ram=16GiB,read=50GB/s,int8=1T,bf16=500G,f32=250G,threads=8")
    assert [m["name"] for m in fit.models] == ["gpt-oss-20b", "Qwen3-8B"]
    given = [row for row in fit.rows() if row["model"] == "gpt-oss-20b"][0]
    assert given["fits"] and 0 < given["decode"] < given["prefill"]
    assert "gpt-oss-20b" in repr(fit)
    with pytest.raises(tally.BadInput):
        tally.fit("gpt2", machine="ram=lots")


def test_audits_agree(model, sparse):
    for audited in (model, sparse):
        audit = audited.audit([1, 2, 3, 4, 5], decode_tokens=3)
        assert audit and audit.agrees and audit.compared > 500 and audit.differing == 0
        assert "all agree" in repr(audit) and audit.to_dict()["compared"] == audit.compared
    assert tally.audit("demo", decode_tokens=1, context=64, mmu=True).agrees
    with pytest.raises(tally.BadInput):
        model.audit([1], mmu=True)


def test_measured_runs(model, tmp_path):
    run = model.measure("ROMEO:", max_tokens=9, temperature=0)
    assert run.text == model.generate("ROMEO:", max_tokens=9, temperature=0).text
    assert run.decode_tokens == 8 and run.flops_per_token > 1e6 and run.parameters["total"] == model.info["parameters"]["total"]
    decode = run.ledger.phases["decode"]
    assert decode["rows"] == 8 and run.flops_per_token * 8 == pytest.approx(decode["flops"])
    assert decode["executed_flops"] >= decode["flops"]
    assert "<svg" in run._repr_html_() and len(run.figures()) >= 3
    run.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    by_component = run.ledger.by_component().to_dict()
    assert sum(by_component["FLOP"]) == run.ledger.flops
    with pytest.raises(AttributeError):
        run.nothing


def test_models_are_named():
    names = tally.models()
    assert "gpt-oss-20b" in names and set(tally.models(runs=True)) | set(tally.models(runs=False)) == set(names)
    assert tally.load("demo", context=32).count().total == 4_541_364
