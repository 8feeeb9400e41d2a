# SPDX-License-Identifier: Apache-2.0
"""engine/python/examples/counting.ipynb runs from its first cell to its last."""

import copy
import os

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is missing (Debian, Ubuntu: python3-nbformat)")
nbclient = pytest.importorskip("nbclient", reason="nbclient is missing (Debian, Ubuntu: python3-nbclient)")
pytest.importorskip("ipykernel", reason="ipykernel is missing (Debian, Ubuntu: python3-ipykernel)")

PATH = os.path.join(os.path.dirname(__file__), "..", "..", "engine", "python", "examples", "counting.ipynb")


@pytest.fixture(scope="module")
def notebook():
    return nbformat.read(PATH, as_version=4)


@pytest.fixture(scope="module")
def executed(notebook, tmp_path_factory):
    made = copy.deepcopy(notebook)
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(made, timeout=300, kernel_name="python3", allow_errors=True,
                                     resources={"metadata": {"path": str(folder)}})
    client.execute()
    return made


def outputs(notebook, source):
    """Of the cell that begins so."""
    cells = [c for c in notebook.cells if c.cell_type == "code" and c.source.startswith(source)]
    assert len(cells) == 1, source
    return cells[0].outputs


def html(notebook, source):
    return "".join("".join(o.data["text/html"]) for o in outputs(notebook, source) if "data" in o and "text/html" in o.data)


def test_is_committed_without_outputs():
    kept = nbformat.read(PATH, as_version=4)
    nbformat.validate(kept)
    for cell in kept.cells:
        assert not cell.metadata
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
            assert all(len(line) <= 140 for line in cell.source.splitlines())


def test_says_what_each_cell_does(notebook):
    """The text above a cell says whether it counts, runs a cut shape or runs demo; the cells of the end only show what was collected."""
    sign, ends = "", False
    for cell in notebook.cells[2:]:
        if cell.cell_type == "markdown":
            sign, ends = cell.source, ends or cell.source.startswith("## 5.")
        elif not ends:
            assert any(s in sign for s in ("[counts", "[runs a cut shape", "[runs demo")), cell.source


def test_no_cell_fails(executed):
    failed = [(c.source, o.ename, o.evalue) for c in executed.cells if c.cell_type == "code" for o in c.outputs
              if o.output_type == "error"]
    assert failed == []


def test_pictures_and_tables(executed):
    for source in ("gpt2 = tally.count", "oss = tally.count", "run = demo.measure"):
        assert "<svg" in html(executed, source)
    for source in ("def formula_000", "gpt2.tables()[0]", "answer", "run.ledger", "wrong ="):
        assert "<table" in html(executed, "demo = tally.load" if source == "answer" else source)


def test_figures_that_it_finds(executed):
    """A few of docs/claims.md."""
    assert "103,680" in html(executed, "mini = tally.count")
    assert "3,608,307,264" in html(executed, "p = oss.to_dict()")
    assert "254,053,376" in html(executed, "medium_with_16_layers")
    wrong = html(executed, "wrong =")
    assert wrong.count("WRONG") == 10 and "20,335,623,744" in wrong
