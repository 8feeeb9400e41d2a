# SPDX-License-Identifier: Apache-2.0
"""Counting models, and what fits a machine."""

from __future__ import annotations

import html
import json
import os
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _tally
from ._errors import BadInput
from ._tables import Document, Table, beside, inline, table_of

Settings = Union[Sequence[str], Mapping[str, Any], None]


Path = Union[str, "os.PathLike[str]"]


def path_text(path: Path) -> str:
    """The path as a str. TypeError: it is none."""
    made = os.fspath(path)
    if not isinstance(made, str):
        raise TypeError(f"a model is a str or a path, not {path!r}")
    return made


def resolve(model: str, configuration: bool) -> str:
    """A model's name as a path, or as the name of a built-in configuration."""
    if model == "demo" and not os.path.exists("demo"):
        return _tally.demo_path()
    if os.path.exists(model):
        return model
    known = {name.lower() for name in _tally.known_models()}
    if model.lower() in known:
        if configuration:
            return model
        raise BadInput(f"{model} is a built-in configuration and has no weights: tally.count counts it, tally.synth writes random weights")
    parts = model.split(":")[0].split("/")
    if len(parts) == 2 and all(parts) and not model.startswith("."):
        try:
            return _tally.find_model(model, configuration, False)
        except BadInput as error:
            raise BadInput(f"{error}; tally.pull({model!r}) fetches it") from None
    if configuration or model.endswith(".gguf") or "/" in model:
        return model  # the library says what is wrong
    raise BadInput(f"{model}: there is no such file or directory")


def _settings(settings: Settings) -> List[str]:
    if settings is None:
        return []
    if isinstance(settings, str):
        return settings.split(",")
    if isinstance(settings, Mapping):
        return [name if value is True else f"{name}={'false' if value is False else value}" for name, value in settings.items()]
    return list(settings)


class Count(Document):
    """What a model costs, from its configuration alone. ``repr`` shows a screen of it, notebooks tables and pictures.

    Parameters are learned elements; FLOPs count a multiply-add as two; bytes are bytes. Definitions: docs/accounting.md.
    """

    def __init__(self, counted: _tally.Counted, again: Tuple[Callable[..., "Count"], Tuple[Any, ...], Dict[str, Any]]) -> None:
        super().__init__(counted.document(), counted.text(80))
        self._counted = counted
        self._again = again  # what made it
        d = self._document
        self.name: str = d["model"]
        self.family: str = d["family"]
        self.configuration: Dict[str, Any] = d["configuration"]
        #: all parameters
        self.total: int = d["parameters"]["total"]
        #: of a token: embedding, positions and head counted
        self.active_all: int = d["parameters"]["active"]["all"]
        #: of a token: of these only the head
        self.active_head: int = d["parameters"]["active"]["head"]
        #: of a token: none of these
        self.active_none: int = d["parameters"]["active"]["none"]
        #: read by a decode step of one token
        self.touched: int = d["parameters"]["touched"]
        #: bytes of the weights, as stored or published, or as ``type``
        self.weight_bytes: int = d["bytes"]["weights"]
        #: bytes of the weights that a decode step of one token reads
        self.weight_bytes_per_token: int = d["bytes"]["weights_per_token"]
        self.stored_as: str = d["bytes"]["stored_as"]
        self.context: int = d["options"]["context"]
        self.prompt: int = d["options"]["prompt"]
        self.batch: int = d["options"]["batch"]
        #: of the prefill, by the way of counting: "matmul_full_square", "matmul_causal", "everything"
        self.prefill_flops: Dict[str, Optional[int]] = d["flops"]["prefill"]["total"]
        #: of a decode step, one token in each sequence, at position ``context`` - 1
        self.decode_flops: Dict[str, Optional[int]] = d["flops"]["decode"]["total"]
        self.warnings: List[str] = d["warnings"]

    def __reduce__(self) -> Tuple[Any, ...]:
        return _count_again, self._again

    @property
    def claims(self) -> List[Dict[str, Any]]:
        """What is published of the model, and which convention each figure agrees with."""
        return list(self._document["published"]["claims"]) if self._document.get("published") else []

    def tables(self, layers: bool = False) -> List[Table]:
        """All tables: tensors (``layers``: of each layer apart), totals, memory, work, with their closed forms."""
        return [Table(table) for table in self._counted.tables(layers)]

    def rows(self, layers: bool = False) -> List[Dict[str, Any]]:
        """A row a figure: model, context, prompt, batch, kv, table, row, figure, value. Values are exact; None: only part is counted."""
        import csv

        rows: List[Dict[str, Any]] = []
        for row in csv.DictReader(self._counted.csv(layers).splitlines()):
            made: Dict[str, Any] = dict(row)
            for name in ("context", "prompt", "batch"):
                made[name] = int(row[name])
            text = row["value"]
            made["value"] = None if text == "" else float(text) if "." in text or "e" in text else int(text)
            rows.append(made)
        return rows

    def to_pandas(self, layers: bool = False) -> Any:
        """``rows()`` as a pandas.DataFrame. ImportError: pandas is not installed."""
        import pandas

        return pandas.DataFrame(self.rows(layers))

    def figures(self) -> List[Tuple[str, str]]:
        """Pictures of the report: (name, SVG document)."""
        return self._counted.figures()

    def _repr_html_(self) -> str:
        counted = self._document["parameters"]
        run = counted["total_run"]
        not_run = [(part["part"] + ", not run", part["parameters"]) for part in counted["not_run"]]
        rows = [("total (run)" if not_run else "total", run), ("active(all)", self.active_all), ("active(head)", self.active_head),
                ("active(none)", self.active_none), ("touched by a decode step", self.touched)]
        shares = table_of(f"{self.name}: {self.total:,} parameters", ["", "parameters", "share"],
                          [[name, n, f"{100 * n / run:.2f} %"] for name, n in rows]
                          + [[name, "unknown" if n is None else n, ""] for name, n in not_run])
        parts = table_of("parts", ["", "parameters", "share", "active(all)"],
                         [["embedding and head" if name == "embedding" and "head" not in counted["parts"] else name, n["parameters"],
                           f"{100 * n['parameters'] / run:.2f} %", n["active"]] for name, n in counted["parts"].items()])

        def a_token(flops: Dict[str, Optional[int]], tokens: int) -> List[Union[int, str]]:
            totals = [flops[way] for way in ("matmul_full_square", "matmul_causal", "everything")]
            return ["partial" if n is None else round(n / tokens) for n in totals]

        work = table_of("FLOPs a token", ["", "matmul, full square", "matmul, causal", "everything"],
                        [[f"prefill of {self.prompt:,}", *a_token(self.prefill_flops, self.prompt * self.batch)],
                         [f"decode at {self.context:,}", *a_token(self.decode_flops, self.batch)]])
        return (beside(table._repr_html_() for table in (shares, parts, work)) + inline(self.figures())
                + f"<details><summary>all of it, as text</summary><pre>{html.escape(self._text)}</pre></details>")


def count(model: Path, *, context: int = 0, prompt: int = 0, batch: int = 1, type: Optional[str] = None,
          settings: Settings = None) -> Count:
    """Counts a model without its weights.

    model: a GGUF file, a Hugging Face directory or its config.json, the name of a built-in configuration ("gpt-oss-120b"; tally.models()
        has them), or a model of the hub that was fetched.
    context: positions that the decode token sees; 0: as ``prompt``. prompt: positions of the prefill; 0: min(1024, trained context).
    batch: sequences. type: the weights' ("Q4_K_M", "BF16"); None: as stored or published.
    settings: changes of the configuration, {"n_layers": 2} or ["n_layers=2", "tied"].
    BadInput: neither a file nor a known name; an unknown architecture, setting or type.
    """
    options: Dict[str, Any] = {"context": context, "prompt": prompt, "batch": batch, "type": type, "settings": _settings(settings)}
    return Count(_tally.count(resolve(path_text(model), True), options), (count, (path_text(model),), options))


def _count_again(make: Callable[..., Count], given: Tuple[Any, ...], options: Dict[str, Any]) -> Count:
    return make(*given, **options)


def config(configuration: Mapping[str, Any], *, name: str = "config", context: int = 0, prompt: int = 0, batch: int = 1,
           type: Optional[str] = None, settings: Settings = None) -> Count:
    """Counts a configuration, a dict as a Hugging Face config.json has it. Otherwise as ``count``."""
    with tempfile.TemporaryDirectory(prefix="tally-") as directory:
        path = os.path.join(directory, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(configuration), file)
        options = {"context": context, "prompt": prompt, "batch": batch, "type": type, "settings": _settings(settings), "name": name}
        try:
            return Count(_tally.count(path, options), (config, (dict(configuration),), options))
        except BadInput as error:
            raise BadInput(str(error).replace(path, name)) from None


class Fit(Document):
    """Whether models fit a machine, at which type, and how fast at most. ``models`` has a dict for each."""

    def __init__(self, fit: Dict[str, Any]) -> None:
        super().__init__(fit["document"], fit["text"])
        self.machine: Dict[str, Any] = self._document["machine"]
        self.models: List[Dict[str, Any]] = self._document["models"]

    def rows(self) -> List[Dict[str, Any]]:
        """A row for each model and type: fits, bytes of memory, longest context, bounds in tokens a second (None: unknown)."""
        rows = []
        for model in self.models:
            for t in model["types"]:
                memory, decode, prefill = t.get("memory_bytes") or {}, t.get("decode") or {}, t.get("prefill") or {}
                rows.append({"model": model["name"], "type": t["type"], "fits": t.get("fits"), "bytes": memory.get("total"),
                             "longest_context": t.get("longest_context"), "decode": decode.get("tokens_per_second"),
                             "prefill": prefill.get("tokens_per_second")})
        return rows

    def to_pandas(self) -> Any:
        """``rows()`` as a pandas.DataFrame. ImportError: pandas is not installed."""
        import pandas

        return pandas.DataFrame(self.rows())


def fit(*models: Path, context: int = 0, prompt: int = 0, batch: int = 1, kv: str = "f16", type: Optional[str] = None,
        machine: Optional[str] = None, threads: int = 0, measure: bool = False) -> Fit:
    """Which of the models fit this machine, or one that is described, and the speed that they cannot exceed.

    machine: "ram=16GiB,read=50GB/s,int8=1T,bf16=500G,f32=250G,threads=8"; None: this one, which is measured for two seconds unless that was
    done since it started (``measure``: anew). type: of the weights; None: several. Bounds are in tokens a second.
    """
    if not models:
        raise TypeError("fit() needs a model")
    options = {"context": context, "prompt": prompt, "batch": batch, "kv": kv, "type": type, "machine": machine, "threads": threads,
               "measure": measure}
    names = [path_text(m) for m in models]
    try:
        return Fit(_tally.fit([(resolve(m, True), "" if resolve(m, True) == m else m) for m in names], options))
    except BadInput as error:
        raise BadInput(str(error).replace("--machine", "machine")) from None


def models(runs: Optional[bool] = None) -> List[str]:
    """The names of the built-in configurations; ``runs``: only those that can be run, or only those that are counted alone."""
    return [name for name in _tally.known_models() if runs is None or _tally.known_model_runs(name) == runs]


def synth(model: Path, path: Path, *, type: str = "BF16", seed: int = 0, layers: int = 0, vocab: int = 0, vocab_from: Path = "",
          prediction: bool = False) -> Dict[str, int]:
    """Writes a checkpoint with random weights, "DIR" (Hugging Face) or "FILE.gguf", over what is there.

    model: the name of a built-in configuration, or a config.json. layers, vocab: of a smaller network; 0: the model's own. vocab_from: a GGUF file whose tokenizer it gets.
    Returns {"tensors", "parameters", "bytes"}.
    """
    options = {"type": type, "seed": seed, "layers": layers, "vocab": vocab, "vocab_from": resolve(path_text(vocab_from), False) if vocab_from else "",
               "prediction": prediction}
    return _tally.synth(path_text(model), path_text(path), options)


def pull(name: str, *, configuration: bool = False) -> str:
    """Fetches "ORG/NAME", "ORG/NAME:FILE" or "ORG/NAME:TYPE" from the Hugging Face hub, unless it is here. Returns its path.

    configuration: only what counting needs. Files lie in huggingface_hub's cache; its variables of the environment are followed.
    """
    return _tally.find_model(name, configuration, True)
