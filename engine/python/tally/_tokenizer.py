# SPDX-License-Identifier: Apache-2.0
"""A model's tokenizer, by the names that Hugging Face's have."""

from __future__ import annotations

import operator
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from . import _chat, _tally
from ._errors import BadInput


class Tokenizer:
    """A model's tokenizer; ``Model.tokenizer``."""

    def __init__(self, model: _tally.Model) -> None:
        info = model.tokenizer_info()
        self._model = model
        self.vocab_size: int = info["vocab_size"]
        self.bos_token_id: Optional[int] = info["bos"] if info["bos"] >= 0 else None
        #: ends of text, turn or message
        self.eos_token_ids: List[int] = info["eos"]
        self.description: str = info["description"]

    @property
    def eos_token_id(self) -> Optional[int]:
        return self.eos_token_ids[0] if self.eos_token_ids else None

    def encode(self, text: str, add_special_tokens: bool = True, *, parse_special: bool = False) -> List[int]:
        """Ids of a text. add_special_tokens: BOS (and EOS) where the model's tokenizer adds them. parse_special: special tokens that are
        spelled out become tokens."""
        return self._model.encode(text, add_special_tokens, parse_special)

    def decode(self, ids: Union[int, Iterable[int]], skip_special_tokens: bool = False) -> str:
        """The text of ids; control tokens are spelled out unless they are skipped."""
        one = hasattr(ids, "__index__") and not hasattr(ids, "__iter__") or getattr(ids, "ndim", 1) == 0
        return self._model.decode([operator.index(ids)] if one else [operator.index(i) for i in ids],  # type: ignore
                                  skip_special_tokens)

    def batch_decode(self, rows: Iterable[Iterable[int]], skip_special_tokens: bool = False) -> List[str]:
        """``decode`` of each row."""
        return [self.decode(row, skip_special_tokens) for row in rows]

    def token_bytes(self, id: int) -> bytes:
        """The bytes of one token, maybe part of a character; empty: a control token."""
        return self._model.token_bytes(id)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> List[str]:
        """The text of each token; control tokens as they are spelled. Bytes that are no UTF-8 become U+FFFD."""
        return [self._model.token_text(operator.index(i)) for i in ids]

    def apply_chat_template(self, messages: _chat.Messages, tools: Optional[Sequence[Mapping[str, Any]]] = None, *,
                            add_generation_prompt: bool = True, continue_final_message: bool = False, tokenize: bool = True,
                            template: Optional[str] = None, thinking: Optional[bool] = None, reasoning_effort: Optional[str] = None,
                            **variables: Any) -> Union[str, List[int]]:
        """The prompt of a chat, as ids or (tokenize=False) as text. ``variables``: further ones of the template.

        continue_final_message: it ends with the last message, the assistant's, which the answer goes on with.
        """
        options: Dict[str, Any] = {"add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message,
                                   "template": template, "thinking": thinking, "reasoning_effort": reasoning_effort, **_chat.chat_options(tools, None, True, variables)}
        rendered = self._model.render(_chat.messages_of(messages), options)
        prompt: Union[str, List[int]] = rendered["tokens" if tokenize else "text"]
        return prompt

    def __call__(self, text: Union[str, Sequence[str]], add_special_tokens: bool = True, *,
                 return_tensors: Optional[str] = None) -> Dict[str, Any]:
        """{"input_ids", "attention_mask"} of a text, or of several; return_tensors="np": as arrays [texts, tokens], filled on the right."""
        if return_tensors not in (None, "np"):
            raise BadInput(f'return_tensors: "np" or None, not {return_tensors!r}')
        rows = [self.encode(t, add_special_tokens) for t in ([text] if isinstance(text, str) else text)]
        mask = [[1] * len(ids) for ids in rows]
        if return_tensors == "np":
            import numpy

            length, pad = max(map(len, rows), default=0), self.eos_token_id or 0
            return {"input_ids": numpy.array([ids + [pad] * (length - len(ids)) for ids in rows]),
                    "attention_mask": numpy.array([ones + [0] * (length - len(ones)) for ones in mask])}
        return {"input_ids": rows[0], "attention_mask": mask[0]} if isinstance(text, str) else {"input_ids": rows, "attention_mask": mask}

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"<tally.Tokenizer {self.description}>"
