# SPDX-License-Identifier: Apache-2.0
"""A loaded model."""

from __future__ import annotations

import html
import operator
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from . import _books, _chat, _tally
from ._answers import Answer, Generation, Stream, Streams
from ._errors import BadInput
from ._tables import Document, Table, inline, table_of
from ._tokenizer import Tokenizer
from ._version import __version__

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from typing_extensions import Unpack

Prompt = Union[str, Iterable[int]]


class EngineOptions(TypedDict, total=False):
    """Options of an engine, EngineOptions of the library.

    threads: 0: all cores available to the process. context: KV positions of a sequence; 0: min(trained length, 4096). sequences: requests
    that run side by side (4). kv: "auto", "f32", "f16", "bf16", "q8_0". kv_bytes: the most bytes of the KV cache of all sequences; 0: full
    contexts. weights_budget: the most bytes of weights in memory; experts, or layers of a model without, that do not fit are read from
    disk when they are used (0: what memory leaves). activations: "auto", "f32", "bf16", "int8". impl: "auto", "ref", "blas". max_batch:
    rows of a step (0: 512). max_logit_rows: rows of a step that may have logits (32). draft_rows: rows of a step that may be drafts.
    prediction: load the layer for multi-token prediction. share_gain_ns: an op is shared among threads if that saves so many nanoseconds.
    """

    threads: int
    context: int
    max_batch: int
    max_logit_rows: int
    draft_rows: int
    prediction: bool
    sequences: int
    kv_bytes: int
    weights_budget: int
    activations: str
    kv: str
    impl: str
    share_gain_ns: int


class GenerateOptions(TypedDict, total=False):
    """Options of a generation, RequestOptions and SamplingOptions of the library.

    max_tokens: -1: until the context is full. temperature (0.8; 0: greedy), top_k (40), top_p (0.95), min_p (0.05), repeat_penalty,
    repeat_last_n, presence_penalty, frequency_penalty, seed (0): how tokens are drawn; the same seed gives the same text. stop: a text
    or several; the answer ends before it. ignore_eos: end tokens are never drawn. min_tokens: before so many,
    no end token is drawn and none of stop_token_ids, which end the answer too. allowed_token_ids: no other token is drawn.
    bad_words_ids: sequences of tokens that never stand in the answer. logit_bias: {token: number that is added}. top_logprobs: log
    probabilities of each token and of so many of the most probable. draft: tokens that are drafted for one step; needs draft_rows. prefix_key: requests of one key run
    equal beginnings once. schema (a dict, JSON text or pydantic model), regex, grammar (GBNF), choices: what the answer may be; one of them.
    spaced: JSON with a space behind commas and colons. jump: text that a grammar decides is not drawn. parse_special: special tokens that
    are spelled out in a text prompt become tokens.
    """

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    seed: int
    stop: Union[str, Sequence[str]]
    ignore_eos: bool
    min_tokens: int
    stop_token_ids: Sequence[int]
    allowed_token_ids: Sequence[int]
    bad_words_ids: Sequence[Sequence[int]]
    logit_bias: Mapping[int, float]
    top_logprobs: int
    draft: int
    prefix_key: Optional[str]
    schema: Any
    regex: str
    grammar: str
    choices: Sequence[str]
    spaced: bool
    jump: bool
    parse_special: bool


class Ledger(Document):
    """Sums over all steps since the model was loaded, or since they were reset. FLOPs and bytes are useful ones."""

    def __init__(self, document: Dict[str, Any]) -> None:
        super().__init__(document, "")
        #: by phase, "prefill", "decode", "mixed" (what steps with rows of both do once)
        self.phases: Dict[str, Dict[str, Any]] = document["phases"]
        #: a dict for each phase, layer and component
        self.sites: List[Dict[str, Any]] = document["sites"]
        #: with ``weights_budget``, by phase: hits, misses, first_uses and bytes_from_disk of experts, and ``layers``, a dict for each
        self.experts: Dict[str, Dict[str, Any]] = document.get("experts", {})
        #: of a model without experts with ``weights_budget``, by phase: bytes_from_disk, and ``layers``, a dict for each layer
        self.streamed_layers: Dict[str, Dict[str, Any]] = document.get("streamed_layers", {})

    @property
    def flops(self) -> int:
        return sum(int(phase["flops"]) for phase in self.phases.values())

    def by_component(self) -> Table:
        """FLOPs and bytes of stored weights by component, all layers and phases together."""
        sums: Dict[str, List[int]] = {}
        for site in self.sites:
            row = sums.setdefault(site["component"], [0, 0, 0, 0])
            for i, n in enumerate((site["ops"], site["flops"], site["executed_flops"], site["bytes"]["weights stored"])):
                row[i] += n
        return table_of("the ledger by component", ["component", "ops", "FLOP", "executed FLOP", "bytes of weights"],
                        [[name, *row] for name, row in sums.items()])

    def to_pandas(self) -> Any:
        """``sites`` as a pandas.DataFrame, bytes by kind in columns of their own. ImportError: pandas is not installed."""
        import pandas

        return pandas.DataFrame([{**{k: v for k, v in site.items() if not isinstance(v, dict)}, **site["bytes"]} for site in self.sites])

    def __repr__(self) -> str:
        return repr(self.by_component())

    def _repr_html_(self) -> str:
        return self.by_component()._repr_html_()


class Run(Document):
    """A measured generation: its text, figures, ledger, and the report with its pictures."""

    def __init__(self, run: Dict[str, Any]) -> None:
        super().__init__(run["figures"], run["summary"])
        self.text: str = run["text"]
        self.tokens: List[int] = run["tokens"]
        self.summary: str = run["summary"]
        self.ledger = Ledger(run["ledger"])
        self._figures: List[Tuple[str, str]] = run["figures_svg"]
        self._page: str = run["page"]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._document:
            return self._document[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __dir__(self) -> List[str]:
        return [*super().__dir__(), *self._document]

    def figures(self) -> List[Tuple[str, str]]:
        """Pictures of the report: (name, SVG document)."""
        return list(self._figures)

    def page(self) -> str:
        """The report as one HTML document that needs nothing else."""
        return self._page

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the page."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._page)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary)}</pre>" + inline(self._figures)


class Audit(Document):
    """Closed form, checkpoint and ledger, compared to the integer. ``agrees``: all rows do."""

    def __init__(self, audit: Dict[str, Any]) -> None:
        super().__init__(audit["document"], audit["text"])
        self.agrees: bool = audit["agrees"]
        #: rows
        self.compared: int = audit["compared"]
        self.differing: int = audit["differing"]

    def __bool__(self) -> bool:
        return self.agrees


def _ids(tokens: Iterable[int]) -> List[int]:
    if hasattr(tokens, "tolist"):
        tokens = tokens.tolist()
    if isinstance(tokens, (bytes, Mapping, set)) or not isinstance(tokens, Iterable):
        raise TypeError(f"a prompt must be a str or a list of token ids, not {tokens!r}")
    return [operator.index(t) for t in tokens]


def _request(call: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    for name in options:
        if name not in GenerateOptions.__annotations__:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
    options = dict(options)
    if "schema" in options:
        options["schema"] = _chat.schema_text(options["schema"])
    return options


class Model:
    """A model in memory and an engine for it; made by ``tally.load``.

    Any number of threads and asyncio tasks may use one at once: requests run side by side, and each answer is the same as alone.
    """

    def __init__(self, model: _tally.Model) -> None:
        self._model = model
        self._tokenizer: Optional[Tokenizer] = None
        self.name: str = model.name
        #: sizes, parameters, memory, threads, what the files leave open ("notes")
        self.info: Dict[str, Any] = model.info()

    # ---- text

    def generate(self, prompt: Prompt, **options: "Unpack[GenerateOptions]") -> Generation:
        """Continues a prompt, a text or token ids. Options: GenerateOptions."""
        return self.stream(prompt, **options).wait()

    def stream(self, prompt: Prompt, **options: "Unpack[GenerateOptions]") -> Stream[Generation]:
        """The same as it comes: ``for`` or ``async for`` over its pieces."""
        return Stream(self._model.start(prompt if isinstance(prompt, str) else _ids(prompt), _request("generate", options)), Generation)

    async def agenerate(self, prompt: Prompt, **options: "Unpack[GenerateOptions]") -> Generation:
        """``generate`` for asyncio."""
        return await self.stream(prompt, **options).wait_async()

    def generate_many(self, prompts: Iterable[Prompt], *, seeds: Optional[Sequence[int]] = None,
                      **options: "Unpack[GenerateOptions]") -> List[Generation]:
        """Continues many prompts, side by side. The answers are in the prompts' order. seeds: one for each prompt; None: ``seed`` for all."""
        streams = self._start_all(prompts, seeds, options)
        try:
            return [stream.wait() for stream in streams]
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise

    def as_completed(self, prompts: Iterable[Prompt], *, seeds: Optional[Sequence[int]] = None,
                     **options: "Unpack[GenerateOptions]") -> Streams[Generation]:
        """The same as they end: ``for`` or ``async for`` over (number of the prompt, answer)."""
        return Streams(self._start_all(prompts, seeds, options))

    def _start_all(self, prompts: Iterable[Prompt], seeds: Optional[Sequence[int]], options: Any) -> List[Stream[Generation]]:
        if isinstance(prompts, (str, bytes)):
            raise TypeError(f"prompts must be a list of prompts, not {prompts!r}")
        prompts = list(prompts)
        if seeds is not None and len(seeds) != len(prompts):
            raise BadInput(f"seeds: there are {len(seeds)}, and {len(prompts)} prompts")
        streams: List[Stream[Generation]] = []
        try:
            for i, prompt in enumerate(prompts):
                streams.append(self.stream(prompt, **(options if seeds is None else {**options, "seed": seeds[i]})))
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise
        return streams

    # ---- chats

    def chat(self, messages: _chat.Messages, *, tools: Optional[Sequence[Mapping[str, Any]]] = None, tool_choice: Any = None,
             parallel_tool_calls: bool = True, thinking: Optional[bool] = None, reasoning_effort: Optional[str] = None,
             template: Optional[str] = None, variables: Optional[Mapping[str, Any]] = None, continue_final_message: bool = False,
             **options: "Unpack[GenerateOptions]") -> Answer:
        """Answers a chat. ``messages``, ``tools`` and ``tool_choice`` are as OpenAI's API has them; a str is a message of the user.

        thinking: enable_thinking of templates that know it. template: Jinja; None: the checkpoint's. variables: further ones of the template.
        continue_final_message: the answer goes on with the last message, the assistant's; its content is the rest.
        Options: GenerateOptions; prefix_key is "chat" unless it is given, so that a chat that goes on does not run its beginning again.
        """
        return self.stream_chat(messages, tools=tools, tool_choice=tool_choice, parallel_tool_calls=parallel_tool_calls,
                                thinking=thinking, reasoning_effort=reasoning_effort, template=template, variables=variables,
                                continue_final_message=continue_final_message, **options).wait()

    def stream_chat(self, messages: _chat.Messages, *, tools: Optional[Sequence[Mapping[str, Any]]] = None, tool_choice: Any = None,
                    parallel_tool_calls: bool = True, thinking: Optional[bool] = None, reasoning_effort: Optional[str] = None,
                    template: Optional[str] = None, variables: Optional[Mapping[str, Any]] = None,
                    continue_final_message: bool = False, **options: "Unpack[GenerateOptions]") -> Stream[Answer]:
        """``chat`` as it comes: ``for`` or ``async for`` over its pieces."""
        all_options = {"prefix_key": "chat", **_request("chat", options), "thinking": thinking, "reasoning_effort": reasoning_effort,
                       "template": template, "continue_final_message": continue_final_message,
                       **_chat.chat_options(tools, tool_choice, parallel_tool_calls, variables)}
        return Stream(self._model.start_chat(_chat.messages_of(messages), _chat.new_ids(), all_options), Answer)

    async def achat(self, messages: _chat.Messages, **options: Any) -> Answer:
        """``chat`` for asyncio."""
        return await self.stream_chat(messages, **options).wait_async()

    # ---- looking

    @property
    def tokenizer(self) -> Tokenizer:
        """BadInput: the model has none; it takes and gives token ids."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self._model)
        return self._tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Without one, the model takes and gives token ids."""
        return self._model.has_tokenizer()

    def tokens(self, prompt: Prompt) -> List[int]:
        """The ids of a prompt: of a text as ``generate`` encodes it."""
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else _ids(prompt)

    def logits(self, prompt: Prompt, *, last: bool = False) -> "NDArray[numpy.float32]":
        """Logits of every position, float32 [tokens, vocab]; ``last``: of the last one, [vocab]. The array owns its memory."""
        return self._model.logits(self.tokens(prompt), last)

    def hidden_states(self, prompt: Prompt, layers: Optional[Sequence[int]] = None, *,
                      normed: bool = True) -> "NDArray[numpy.float32]":
        """The residual stream, float32 [layers, tokens, d_model]: 0 is the embedding, i what is there after i layers.

        normed: the last one is taken behind the model's last norm, as Hugging Face's output_hidden_states has it. layers: None: all.
        """
        n = self.info["layers"]
        given = list(range(n + 1)) if layers is None else [operator.index(i) for i in layers]
        for i in given:
            if not -n - 1 <= i <= n:
                raise BadInput(f"layers: {i} is not 0 (the embedding) to {n}, nor -1 (the last) to {-n - 1}")
        chosen = [i % (n + 1) for i in given]
        return self._model.hidden(self.tokens(prompt), [-1 if normed and i == n else i for i in chosen])

    def taps(self, prompt: Prompt, names: Union[str, Sequence[str]] = "*") -> "Dict[str, NDArray[numpy.float32]]":
        """Outputs of ops by name, float32 [rows, width]: "blk.3.attn_q.matmul", "head.matmul". ``names``: shell patterns.

        Rows are the prompt's tokens; or one for each token and expert, in the order in which a step computes them: by expert, in pieces of
        max_logit_rows tokens. BadInput: no op has such a name.
        """
        return self._model.taps(self.tokens(prompt), [names] if isinstance(names, str) else list(names))

    def token_logprobs(self, prompt: Prompt) -> "NDArray[numpy.float64]":
        """ln p of each token but the first, given those before it: float64 [tokens - 1]."""
        return self._model.score(self.tokens(prompt), 1)[0]

    def loglikelihood(self, context: Prompt, continuation: Prompt) -> Tuple[float, bool]:
        """ln p of a continuation, and whether greedy decoding would give it: what lm-evaluation-harness asks.

        Texts are encoded together, and cut where the tokens of the context alone end; blanks at the context's end belong to the continuation.
        Before an empty context comes BOS, or else the end token. What contexts begin with is run once for several calls. BadInput: the
        continuation has no tokens of its own, since it is empty, or one token with the end of its context.
        """
        if isinstance(context, str) and isinstance(continuation, str):
            kept = context.rstrip()
            before, whole = self.tokens(kept), self.tokens(kept + context[len(kept):] + continuation)
            after = whole[len(before):]
        else:
            before = self.tokens(context)
            after = self.tokenizer.encode(continuation, False) if isinstance(continuation, str) else _ids(continuation)
        if not after:
            raise BadInput("the continuation has no tokens of its own: it is empty, or one token with the end of its context")
        if not before:
            before = self._beginning()
        logprobs, greedy = self._model.score(before + after, len(before))
        return float(logprobs.sum()), all(greedy)

    def _beginning(self) -> List[int]:
        tokenizer = self.tokenizer if self.has_tokenizer else None
        first = tokenizer.bos_token_id if tokenizer is not None else None
        ends = self.info["end_tokens"]
        if first is None and not ends:
            raise BadInput("the context is empty, and the model has neither BOS nor an end token to begin with")
        return [first if first is not None else ends[0]]

    # ---- the books

    def count(self, **options: Any) -> _books.Count:
        """``tally.count`` of this model, from its files."""
        made = _books.count(self._path, **options)
        made.name = self.name
        return made

    def ledger(self, *, reset: bool = False) -> Ledger:
        """Sums over all steps of this model since it was loaded, or since the last reset. Waits until requests have ended."""
        return Ledger(self._model.ledger(reset))

    def measure(self, prompt: Prompt, **options: "Unpack[GenerateOptions]") -> Run:
        """A generation alone, every op recorded and timed, which makes small models slower. Resets the ledger.

        Options: those of GenerateOptions that decide how tokens are drawn.
        """
        return Run(self._model.measure(self.tokens(prompt), {**options, "version": __version__}))

    def audit(self, prompt: Prompt = (1, 2, 3, 4), *, decode_tokens: int = 8, mmu: bool = False) -> Audit:
        """Runs a prompt and compares every step's charges with the closed form and the checkpoint. Resets the ledger.

        mmu: also the pages of the weights that were touched, by page faults; the model must be loaded with ``guard_slices``.
        """
        return Audit(self._model.audit(self.tokens(prompt), decode_tokens, mmu))

    # ---- the end

    _path: str = ""

    def close(self) -> None:
        """Ends its thread and gives its memory back. Requests that have not ended are cancelled. The model cannot be used any longer."""
        self._model.close()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tally.Model {self.name}: {self.info['description']}>"


def load(path: "Union[str, os.PathLike[str]]", *, guard_slices: bool = False, progress: Optional[Callable[[int, int], Any]] = None,
         **options: "Unpack[EngineOptions]") -> Model:
    """Loads a model: a GGUF file, a Hugging Face directory, one of the hub that was fetched ("ORG/NAME"), or "demo".

    Options: EngineOptions. progress: called with the bytes that were read, and all. guard_slices: for ``audit(mmu=True)``.
    BadInput: no such file, a malformed one, an unknown family. NoRoom: more memory or threads than there are.
    """
    name = _books.path_text(path)
    found = _books.resolve(name, False)
    model = Model(_tally.load(found, name, guard_slices, progress, options))
    model._path = found
    return model


def audit(model: "Union[str, os.PathLike[str], Model]", prompt: Prompt = (1, 2, 3, 4), *, decode_tokens: int = 8, mmu: bool = False,
          **options: "Unpack[EngineOptions]") -> Audit:
    """``Model.audit`` of a model, or of one that is loaded for it, with the options of ``load``."""
    if isinstance(model, Model):
        return model.audit(prompt, decode_tokens=decode_tokens, mmu=mmu)
    with load(model, guard_slices=mmu, **options) as loaded:
        return loaded.audit(prompt, decode_tokens=decode_tokens, mmu=mmu)
