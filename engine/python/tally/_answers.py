# SPDX-License-Identifier: Apache-2.0
"""Answers of a model: whole, and as they come."""

from __future__ import annotations

import asyncio
import json
import os
import select
import weakref
from typing import (Any, AsyncIterator, Dict, Generic, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar)

from . import _tally
from ._errors import ForkedError
from ._tables import Document, Table, table_of


class Work(NamedTuple):
    """Useful work of a request in one phase, prefill or decode. What a step does once for several requests is divided among them."""

    rows: int
    flops: int
    special: int
    bytes: Dict[str, int]
    flops_by_class: Dict[str, int]


class Cost(Document):
    """What a request cost. ``to_dict()`` is what ``tally serve`` answers as "tally"."""

    def __init__(self, document: Dict[str, Any]) -> None:
        super().__init__(document, "")
        #: tokens of the prompt that were run: those that had been run before for the same prefix_key are not among them
        self.prompt_tokens: int = document["prompt_tokens"]
        #: tokens that were run after the prompt
        self.decode_tokens: int = document["decode_tokens"]
        self.prompt_seconds: float = document["prompt_seconds"]
        self.generate_seconds: float = document["generate_seconds"]
        self.first_token_seconds: float = document["first_token_seconds"]
        #: parameters that its rows read: the union
        self.parameters_touched: int = document["parameters_touched"]
        #: parameters of a token by the convention that counts all
        self.parameters_active: int = document["parameters_active"]
        self.kv_bytes: int = document["kv_bytes"]

    def _work(self, phase: str) -> Work:
        d = self._document[phase]
        return Work(d["rows"], d["flops"], d["special"], d["bytes"], d["flops_by_class"])

    @property
    def prefill(self) -> Work:
        return self._work("prefill")

    @property
    def decode(self) -> Work:
        return self._work("decode")

    @property
    def flops(self) -> int:
        """Of both phases."""
        return self.prefill.flops + self.decode.flops

    @property
    def flops_per_token(self) -> Optional[float]:
        """Of a decoded token, as a mean; None: none was."""
        work = self.decode
        return work.flops / work.rows if work.rows else None

    @property
    def table(self) -> Table:
        rows = [["rows", self.prefill.rows, self.decode.rows], ["FLOP", self.prefill.flops, self.decode.flops]]
        rows += [[f"bytes: {kind}", self.prefill.bytes[kind], n] for kind, n in self.decode.bytes.items()
                 if n or self.prefill.bytes[kind]]
        return table_of(f"parameters: {self.parameters_touched:,} touched, {self.parameters_active:,} active(all)",
                        ["", "prefill", "decode"], rows)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


class TokenLogprob(NamedTuple):
    """Log probabilities of a token, natural ones, as the model gives them: before bias, penalties, temperature and filters."""

    token: int
    logprob: float
    #: the most probable tokens, the best first
    top: List[Tuple[int, float]]


class ToolCall(NamedTuple):
    """A call of a tool in an answer."""

    id: str
    name: str
    #: JSON, as the model wrote it; not checked
    arguments: str

    def parsed(self) -> Any:
        """The arguments as Python has them. json.JSONDecodeError: they are no JSON."""
        return json.loads(self.arguments)


class Piece(NamedTuple):
    """A part of an answer as it comes. ``kind``: "content", "reasoning", "call", "mark"."""

    text: str
    token: int
    kind: str = "content"
    call: Optional[ToolCall] = None
    logprob: Optional[TokenLogprob] = None

    def __str__(self) -> str:
        return self.text


class Generation:
    """A whole answer. ``finish``: "length", "eos", "stop", "context_full" or "interrupted"."""

    def __init__(self, result: Dict[str, Any], pieces: Sequence[Piece]) -> None:
        self.text: str = "".join(p.text for p in pieces if p.kind == "content")
        #: ids that were drawn, an end token not included
        self.tokens: List[int] = result["tokens"]
        #: the end token that ended it; None: none did
        self.end_token: Optional[int] = result["end_token"] if result["end_token"] >= 0 else None
        self.finish: str = result["finish"]
        #: the stop string that ended it; "": none did
        self.stop: str = result["stop"]
        self.prompt_tokens: int = result["prompt_tokens"]
        #: of these, tokens that had been run before for the same prefix_key
        self.reused_tokens: int = result["reused_tokens"]
        #: sentences about what was sent or held otherwise than asked
        self.notes: List[str] = result["notes"]
        #: of each token, if top_logprobs was given
        self.logprobs: List[TokenLogprob] = [p.logprob for p in pieces if p.logprob is not None]
        self._cost: Optional[Dict[str, Any]] = result["cost"]

    @property
    def cost(self) -> Cost:
        """What it cost. ValueError: the model was closed before the answer ended."""
        if self._cost is None:
            raise ValueError("the model was closed before the answer ended")
        return Cost(self._cost)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r}, finish={self.finish!r}, tokens={len(self.tokens)})"


class Answer(Generation):
    """A whole answer in a chat: ``text`` is its content."""

    def __init__(self, result: Dict[str, Any], pieces: Sequence[Piece]) -> None:
        super().__init__(result, pieces)
        self.reasoning: str = "".join(p.text for p in pieces if p.kind == "reasoning")
        self.tool_calls: List[ToolCall] = [p.call for p in pieces if p.call is not None]

    @property
    def content(self) -> str:
        return self.text

    @property
    def message(self) -> Dict[str, Any]:
        """The message to append to the chat."""
        message: Dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                                     for c in self.tool_calls]
        return message


def pieces_of(events: Sequence[Tuple[int, List[Tuple[str, str, Optional[Tuple[str, str, str]]]], Any]]) -> List[Piece]:
    """A piece for each part; a token without parts has an empty one, so that its log probability is kept."""
    pieces = []
    for token, parts, logprobs in events:
        logprob = None if logprobs is None else TokenLogprob(token, logprobs[0], logprobs[1])
        for kind, text, call in parts or [("content", "", None)]:
            pieces.append(Piece(text, token, kind, None if call is None else ToolCall(*call), logprob))
            logprob = None
    return pieces


class Pipe:
    """A pipe that answers write to when there is news."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        self._process = os.getpid()

    def check_fork(self) -> None:
        if os.getpid() != self._process:
            raise ForkedError("the answers were started before fork()")

    def clear(self) -> None:
        try:
            while os.read(self.reader, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        if self.reader >= 0:
            os.close(self.reader)
            os.close(self.writer)
            self.reader = self.writer = -1


class Loop:
    """What an event loop's tasks wait for answers with: one pipe for all. It lives as long as answers are registered."""

    _all: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Loop]" = weakref.WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pipe = Pipe()
        self._registered = 0
        self._waiting: Dict[int, Tuple[_tally.Answer, bool, asyncio.Future[None]]] = {}
        self._any: List[asyncio.Future[None]] = []
        loop.add_reader(self._pipe.reader, self._news)

    @classmethod
    def running(cls) -> "Loop":
        loop = asyncio.get_running_loop()
        if loop not in cls._all:
            cls._all[loop] = cls(loop)
        return cls._all[loop]

    def register(self, answer: _tally.Answer, at_end: bool) -> None:
        self._registered += 1
        answer.set_wake(self._pipe.writer, at_end)

    def drop(self, answer: _tally.Answer) -> None:
        answer.set_wake(-1, False)
        self._registered -= 1
        if self._registered > 0:
            return
        for loop, of in list(self._all.items()):
            if of is self:
                del self._all[loop]
                if not loop.is_closed():
                    loop.remove_reader(self._pipe.reader)
        self._pipe.close()

    def _news(self) -> None:
        self._pipe.clear()
        for came in self._any:
            if not came.done():
                came.set_result(None)
        for answer, at_end, came in list(self._waiting.values()):
            if not came.done() and (answer.over() if at_end else answer.has_news()):
                came.set_result(None)

    async def wait(self, answer: _tally.Answer, at_end: bool) -> None:
        self._pipe.check_fork()
        if id(answer) in self._waiting:
            raise RuntimeError("two tasks wait for one stream")
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[id(answer)] = (answer, at_end, came)
        try:
            if not (answer.over() if at_end else answer.has_news()):
                await came
        finally:
            del self._waiting[id(answer)]

    async def wait_for_any(self) -> None:
        """Until some answer of the loop has news."""
        self._pipe.check_fork()
        came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._any.append(came)
        try:
            await came
        finally:
            self._any.remove(came)


G = TypeVar("G", bound=Generation)


class Stream(Generic[G]):
    """An answer as it comes: ``for`` or ``async for`` over its pieces. ``result`` is the whole answer, once it has ended.

    Leaving it early (``close``, ``with``, the end of an ``async with``, or when it is collected) cancels the request.
    """

    def __init__(self, answer: _tally.Answer, make: "type[G]") -> None:
        self._answer: Optional[_tally.Answer] = answer
        self._make = make
        self._all: List[Piece] = []
        self._next: List[Piece] = []
        self._loop: Optional[Loop] = None
        self._result: Optional[G] = None
        self._error: Optional[BaseException] = None

    @property
    def result(self) -> G:
        """The whole answer. ValueError: it has not ended; errors of the generation."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ValueError("the answer has not ended: iterate to its end, or close it")
        return self._result

    def _native(self) -> _tally.Answer:
        assert self._answer is not None
        return self._answer

    def _take(self) -> None:
        pieces = pieces_of(self._native().events())
        self._all += pieces
        self._next += pieces

    def cancel(self) -> None:
        """Cancels the request, unless it has ended, without waiting for its end."""
        if self._answer is not None:
            self._answer.cancel()

    def _end(self) -> None:
        if self._answer is None:
            return
        answer = self._native()
        self._drop_loop()
        self._answer = None  # it holds the model
        try:
            answer.raise_error()
            self._result = self._make(answer.result(), self._all)
        except BaseException as error:
            self._error = error

    def _drop_loop(self) -> None:
        if self._loop is not None:
            self._loop.drop(self._native())
            self._loop = None

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        while not self._next:
            events = self._answer.next() if self._answer is not None else None
            if events is None:
                self._end()
                if self._error is not None:
                    raise self._error
                raise StopIteration
            pieces = pieces_of(events)
            self._all += pieces
            self._next += pieces
        return self._next.pop(0)

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def _news(self, at_end: bool) -> None:
        """Until pieces have come, or the end. A task that is cancelled cancels the request."""
        answer = self._native()
        if self._loop is None:
            self._loop = Loop.running()
            self._loop.register(answer, at_end)
        try:
            await self._loop.wait(answer, at_end)
        except asyncio.CancelledError:
            answer.cancel()
            raise

    async def __anext__(self) -> Piece:
        while not self._next:
            if self._answer is None:
                if self._error is not None:
                    raise self._error
                raise StopAsyncIteration
            self._take()
            if self._next:
                break
            if self._answer.ended():
                self._end()
            else:
                await self._news(at_end=False)
        return self._next.pop(0)

    def wait(self) -> G:
        """The whole answer, when it has ended. Ctrl-C cancels it."""
        if self._answer is not None:
            self._answer.wait()
            self._take()
            self._end()
        return self.result

    async def wait_async(self) -> G:
        """The whole answer, when it has ended. Cancelling the task cancels it."""
        while self._answer is not None and not self._answer.over():
            await self._news(at_end=self._loop is None)
        return self.wait()

    def close(self) -> None:
        """Cancels the request, unless it has ended, and waits for its end: at most a step."""
        if self._answer is None:
            return
        self._answer.cancel()
        self._answer.wait()
        self._take()
        self._next.clear()
        self._end()

    def __enter__(self) -> "Stream[G]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "Stream[G]":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()
        while self._answer is not None and not self._answer.over():
            await self._news(at_end=self._loop is None)
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_answer", None) is not None:
            self._native().cancel()
            self._drop_loop()


class Streams(Generic[G]):
    """Several answers: ``for`` or ``async for`` over (number of the prompt, answer), in the order in which they end.

    The error of an answer is raised in its turn, with its prompt's number in ``index``; the others go on. Ctrl-C, and cancelling the task,
    cancel all.
    """

    def __init__(self, streams: Sequence[Stream[G]]) -> None:
        self._left = dict(enumerate(streams))
        self._ended: List[int] = []
        self._pipe: Optional[Pipe] = None
        self._loop: Optional[Loop] = None
        self._waits = False

    def _next(self) -> Optional[Tuple[int, G]]:
        if not self._ended:
            self._ended = [i for i, stream in self._left.items() if stream._answer is None or stream._answer.over()]
        if not self._ended:
            return None
        i = self._ended.pop(0)
        stream = self._left.pop(i)
        if self._pipe is not None and stream._answer is not None:
            stream._answer.set_wake(-1, False)
        try:
            return i, stream.wait()
        except Exception as error:
            setattr(error, "index", i)
            raise

    def _wait(self) -> None:
        if self._waits:
            raise RuntimeError("two threads wait for one Streams")
        self._waits = True
        try:
            if self._pipe is None:
                self._pipe = Pipe()
                for stream in self._left.values():
                    stream._native().set_wake(self._pipe.writer, True)
            self._pipe.check_fork()
            poll = select.poll()
            poll.register(self._pipe.reader, select.POLLIN)
            poll.poll()
            self._pipe.clear()
        except BaseException:
            self.close()
            raise
        finally:
            self._waits = False

    def __iter__(self) -> Iterator[Tuple[int, G]]:
        return self

    def __next__(self) -> Tuple[int, G]:
        try:
            while self._left:
                ended = self._next()
                if ended is not None:
                    return ended
                self._wait()
        except KeyboardInterrupt:
            self.close()
            raise
        self.close()
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Tuple[int, G]]:
        return self

    async def __anext__(self) -> Tuple[int, G]:
        while self._left:
            ended = self._next()
            if ended is not None:
                return ended
            if self._loop is None:
                self._loop = Loop.running()
                for stream in self._left.values():
                    stream._loop = self._loop
                    self._loop.register(stream._native(), at_end=True)
                continue  # one may have ended before
            try:
                await self._loop.wait_for_any()
            except BaseException:
                self.close()
                raise
        self.close()
        raise StopAsyncIteration

    def close(self) -> None:
        """Cancels those that have not ended."""
        for stream in self._left.values():
            if self._pipe is not None and stream._answer is not None:
                stream._answer.set_wake(-1, False)
            stream.cancel()
        self._left.clear()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def __enter__(self) -> "Streams[G]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_pipe"):
            self.close()
