# SPDX-License-Identifier: Apache-2.0
"""Calls as Hugging Face's transformers has them."""

from __future__ import annotations

import operator
import os
import types
from typing import TYPE_CHECKING, Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._errors import BadInput
from ._model import EngineOptions, Model, load
from ._tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from typing_extensions import Unpack


class Output(NamedTuple):
    """What a forward pass gives."""

    #: float32 [batch, tokens, vocab]
    logits: "NDArray[numpy.float32]"
    #: float32 [layers + 1] arrays of [batch, tokens, d_model], the last one behind the last norm; None: not asked for
    hidden_states: "Optional[Tuple[NDArray[numpy.float32], ...]]" = None


def _batch(input_ids: Any) -> List[List[int]]:
    if isinstance(input_ids, (str, bytes)):
        raise TypeError(f"input_ids must be token ids, not {input_ids!r}: model.tokenizer(text) makes them")
    ids = input_ids.tolist() if hasattr(input_ids, "tolist") else list(input_ids)
    if ids and not isinstance(ids[0], (list, tuple)):
        ids = [ids]
    return [[operator.index(t) for t in row] for row in ids]


def _without_padding(input_ids: Any, attention_mask: Any) -> List[List[int]]:
    rows = _batch(input_ids)
    if attention_mask is None:
        return rows
    masks = _batch(attention_mask)
    if [len(row) for row in rows] != [len(mask) for mask in masks]:
        raise BadInput("attention_mask must have the shape of input_ids")
    return [[t for t, keep in zip(row, mask) if keep] for row, mask in zip(rows, masks)]


class PretrainedModel:
    """A model with transformers' ``generate`` and forward pass; made by ``tally.from_pretrained``. ``model`` is the tally.Model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        i = model.info
        #: ``model.info``, and the names that transformers has
        self.config = types.SimpleNamespace(**i, vocab_size=i["vocab"], hidden_size=i["d_model"], num_hidden_layers=i["layers"],
                                            num_attention_heads=i["heads"], num_key_value_heads=i["kv_heads"],
                                            intermediate_size=i["d_ff"], max_position_embeddings=i["trained_context"])

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer

    def generate(self, input_ids: Any, *, max_new_tokens: int = 20, do_sample: bool = False, temperature: float = 1.0, top_k: int = 50,
                 top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0, min_new_tokens: int = 0,
                 bad_words_ids: Sequence[Sequence[int]] = (), seed: int = 0,
                 pad_token_id: Optional[int] = None, eos_token_id: "Union[int, Sequence[int], None]" = None,
                 attention_mask: Any = None) -> Any:
        """Continues each row of ids: int64 [batch, tokens], the rows as they are given, then what is drawn, end tokens too.

        Defaults are those of transformers; row i is drawn with seed + i. Shorter answers are filled with pad_token_id, or the end token.
        eos_token_id: must be among the model's own, all of which end an answer. attention_mask: 0 where a row is padded, on either side. A
        tensor gives a tensor of its kind, anything else a numpy array.
        """
        import numpy

        ends = self.model.info["end_tokens"]
        for end in [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id or []:
            if end not in ends:
                raise BadInput(f"eos_token_id: {end} is no end token of this model, which has {ends}")
        prompts = _without_padding(input_ids, attention_mask)
        answers = self.model.generate_many(
            prompts, max_tokens=max_new_tokens, temperature=temperature if do_sample else 0.0, top_k=top_k if do_sample else 0,
            top_p=top_p if do_sample else 1.0, min_p=min_p if do_sample else 0.0, repeat_penalty=repetition_penalty,
            repeat_last_n=-1, min_tokens=min_new_tokens, bad_words_ids=bad_words_ids, seeds=range(seed, seed + len(prompts)))
        rows = [given + a.tokens + ([] if a.end_token is None else [a.end_token]) for given, a in zip(_batch(input_ids), answers)]
        length = max(map(len, rows), default=0)
        pad = pad_token_id if pad_token_id is not None else ends[0] if ends else 0
        made = numpy.array([row + [pad] * (length - len(row)) for row in rows], dtype=numpy.int64)
        return input_ids.new_tensor(made) if hasattr(input_ids, "new_tensor") else made

    def __call__(self, input_ids: Any, *, attention_mask: Any = None, output_hidden_states: bool = False) -> Output:
        """The forward pass of rows of one length."""
        import numpy

        rows = _without_padding(input_ids, attention_mask)
        if len({len(row) for row in rows}) != 1:
            raise BadInput("input_ids: rows of one length are expected; padding is not run")
        logits = numpy.stack([self.model.logits(row) for row in rows])
        if not output_hidden_states:
            return Output(logits)
        states = numpy.stack([self.model.hidden_states(row) for row in rows], axis=1)
        return Output(logits, tuple(states))

    def close(self) -> None:
        """Model.close."""
        self.model.close()

    def __repr__(self) -> str:
        return f"<tally.PretrainedModel of {self.model!r}>"


def from_pretrained(path: "Union[str, os.PathLike[str]]", **options: "Unpack[EngineOptions]") -> PretrainedModel:
    """``tally.load`` for those who know transformers: the model has ``generate(input_ids, max_new_tokens=...)`` and ``tokenizer``."""
    return PretrainedModel(load(path, **options))
