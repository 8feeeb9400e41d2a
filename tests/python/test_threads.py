# SPDX-License-Identifier: Apache-2.0
"""Threads, asyncio, signals, fork, and several models."""

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import tally

PROMPTS = ["ROMEO:", "JULIET:\nO", "The", "What", "KING:", "Go,", "My lord", "Ay"]


def alone(model):
    return [model.generate(p, max_tokens=10, seed=2).tokens for p in PROMPTS]


def test_threads_share_a_model(model):
    expected = alone(model)
    got = [None] * len(PROMPTS)

    def work(i):
        got[i] = model.generate(PROMPTS[i], max_tokens=10, seed=2).tokens
        model.logits(PROMPTS[i], last=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(PROMPTS))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == expected


def test_the_lock_is_free_while_the_engine_runs(model):
    """Another thread goes on while an answer is waited for."""
    turns = 0
    done = False

    def count():
        nonlocal turns
        while not done:
            turns += 1
            time.sleep(0.0005)

    counter = threading.Thread(target=count)
    counter.start()
    before = turns
    model.generate("ROMEO:", max_tokens=400, ignore_eos=True)
    during = turns - before
    done = True
    counter.join()
    assert during > 10


def test_asyncio(model):
    expected = alone(model)

    async def stream(prompt):
        ids = []
        async with model.stream(prompt, max_tokens=10, seed=2) as pieces:
            async for piece in pieces:
                ids += [piece.token] if piece.token >= 0 else []
        assert list(dict.fromkeys(ids)) == list(dict.fromkeys(pieces.result.tokens))
        return pieces.result.tokens

    async def main():
        assert list(await asyncio.gather(*map(stream, PROMPTS))) == expected
        assert [g.tokens for g in await asyncio.gather(*(model.agenerate(p, max_tokens=10, seed=2) for p in PROMPTS))] == expected
        ended = {}
        async for i, answer in model.as_completed(PROMPTS, max_tokens=10, seed=2):
            ended[i] = answer.tokens
        assert [ended[i] for i in range(len(PROMPTS))] == expected
        assert (await model.achat("How now?", max_tokens=4)).tokens

    asyncio.run(main())


def test_a_cancelled_task_ends_its_request(model):
    async def main():
        task = asyncio.ensure_future(model.agenerate("ROMEO:", ignore_eos=True))
        await asyncio.sleep(0.01)  # an answer takes more than .1 s
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    begin = time.monotonic()
    asyncio.run(main())
    model.ledger()  # waits until all requests have ended
    assert time.monotonic() - begin < 5


def test_streams_that_are_left_end(model):
    stream = model.stream("ROMEO:", ignore_eos=True)
    next(stream)
    stream.close()
    assert stream.result.finish == "interrupted" and stream.result.tokens and stream.result.cost.decode_tokens >= 0
    with model.stream("ROMEO:", ignore_eos=True) as pieces:
        next(pieces)
    assert pieces.result.finish == "interrupted"
    dropped = model.stream("ROMEO:", ignore_eos=True)
    next(dropped)
    del dropped
    gc.collect()
    begin = time.monotonic()
    model.ledger()
    assert time.monotonic() - begin < 5


def test_two_models(model):
    expected = alone(model)
    with tally.load("demo", threads=1, context=128) as other:
        streams = [m.stream(p, max_tokens=10, seed=2) for p in PROMPTS for m in (model, other)]
        assert [s.wait().tokens for s in streams[0::2]] == expected == [s.wait().tokens for s in streams[1::2]]


def test_closing_ends_what_runs():
    other = tally.load("demo", context=512)
    errors = []

    def work(call):
        try:
            call()
        except tally.Error as error:
            errors.append(error)

    calls = [lambda: errors.append(other.generate("ROMEO:", ignore_eos=True).finish),
             lambda: [other.logits(list(range(1, 200))) for _ in range(1000)]]
    threads = [threading.Thread(target=work, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    time.sleep(0.05)
    other.close()
    for t in threads:
        t.join(10)
        assert not t.is_alive()
    assert len(errors) == 2


SCRIPT = """
import sys, tally
m = tally.load("demo", context=512, threads=1)
calls = {
  "generate": lambda: [m.generate("ROMEO:", ignore_eos=True) for _ in range(1000)],
  "stream": lambda: [list(m.stream("ROMEO:", ignore_eos=True)) for _ in range(1000)],
  "logits": lambda: [m.logits(list(range(1, 400))) for _ in range(10000)],
  "many": lambda: list(m.as_completed(["ROMEO:"] * 1000, ignore_eos=True)),
}
print("ready", flush=True)
try:
    calls[sys.argv[1]]()
except KeyboardInterrupt:
    print("interrupted", m.generate("ROMEO:", max_tokens=2, temperature=0).tokens != [], flush=True)
"""


@pytest.mark.parametrize("call", ["generate", "stream", "logits", "many"])
def test_ctrl_c_ends_a_call_and_the_model_goes_on(call):
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, call], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=30)[0] == "interrupted True\n" and child.returncode == 0


def test_ctrl_c_between_two_waits_cancels_all(model):
    streams = model.as_completed(PROMPTS, ignore_eos=True)
    answers = [stream._answer for stream in streams._left.values()]

    def interrupted():
        raise KeyboardInterrupt

    streams._next = interrupted  # Python raises it wherever it is
    with pytest.raises(KeyboardInterrupt):
        next(streams)
    for answer in answers:
        answer.wait()
        assert answer.result()["finish"] == "interrupted"


def test_a_child_of_fork_is_told(model):
    def child(queue):
        texts = []
        for call in (lambda: model.generate("x"), lambda: model.logits("x"), lambda: tally.load("demo"), lambda: model.audit()):
            try:
                call()
                texts.append("no error")
            except tally.ForkedError as error:
                texts.append(str(error))
        try:
            next(answers)
        except tally.ForkedError:
            texts[0] += " and answers"
        texts.append(tally.count("gpt2").total)  # needs no engine
        queue.put(texts)

    answers = model.as_completed(["a", "b"], max_tokens=300, ignore_eos=True)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    texts = queue.get(timeout=30)
    process.join(30)
    assert process.exitcode == 0
    assert [i for i, _ in sorted(answers)] == [0, 1] and texts[0].endswith("and answers")
    assert texts[4] == 124_439_808 and all("fork()" in t for t in texts[:4])
    assert model.generate("x", max_tokens=1).tokens


def test_the_interpreter_ends_with_a_model_at_work():
    script = "import tally; m = tally.load('demo'); s = m.stream('ROMEO:', ignore_eos=True); next(s); print('end')"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "end\n", "")


@pytest.mark.parametrize("call", ["m.token_logprobs([1, 2, 3])", "m.taps([1], 'head.*')"])
def test_numpy_may_be_used_first_by_threads(call):
    script = f"""
import tally, threading
m = tally.load('demo')
threads = [threading.Thread(target=lambda: {call}) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


@pytest.mark.parametrize("work", ["with m: m.generate([1], ignore_eos=True)", "tally.load('demo').generate([1], ignore_eos=True)"])
def test_the_interpreter_ends_while_a_thread_closes(work):
    script = f"""
import tally, threading, time
m = tally.load('demo')
def run():
    {work}
threading.Thread(target=run, daemon=True).start()
time.sleep(.1)
"""
    for _ in range(6):
        assert subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60).returncode == 0


def test_a_job_that_waits_is_cancelled():
    script = """
import os, signal, tally, threading, time
m = tally.load('demo', sequences=1, context=4096)
streams = [m.stream([1], ignore_eos=True) for _ in range(20)]
threading.Timer(.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    m.ledger()
except KeyboardInterrupt:
    print(time.monotonic() - begin < 2)
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60).stdout == "True\n"


def test_a_job_without_room_waits_for_it():
    with tally.load("demo", sequences=4, context=512, kv="f32", kv_bytes=1_600_000, threads=1) as small:
        expected = small.token_logprobs([1] * 450)
        streams = [small.stream("ROMEO:", ignore_eos=True, max_tokens=200) for _ in range(3)]
        assert (small.token_logprobs([1] * 450) == expected).all()
        assert {s.wait().finish for s in streams} == {"length"}


@pytest.mark.parametrize("call", ["m.generate('a', max_tokens=90000, ignore_eos=True)", "[m.logits([1] * 60000) for _ in range(99)]"])
def test_the_interpreter_ends_while_a_thread_waits(call):
    script = f"""
import tally, threading, time
m = tally.load('demo', context=100000)
def work():
    try:
        {call}
    except tally.BadInput:
        pass
threading.Thread(target=work, daemon=True).start()
time.sleep(.2)
"""
    for _ in range(4):
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_closing_gives_the_memory_back(tmp_path):
    path = str(tmp_path / "big.gguf")
    tally.synth("gpt2", path, layers=2, type="F16")

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    big = tally.load(path, context=64)
    weights = big.info["memory"]["packed_weights"]
    stream = big.stream([1, 2], max_tokens=2)
    assert len(stream.wait().tokens) == 2 and resident() > before + weights // 2
    big.close()
    assert resident() < before + weights // 2
    assert stream.result.cost.decode_tokens == 1
    with pytest.raises(tally.BadInput, match="closed"):
        big.generate([1])


def test_two_tasks_cannot_share_a_stream(model):
    async def main():
        stream = model.stream("ROMEO:", ignore_eos=True)

        async def read():
            async for _ in stream:
                pass

        results = await asyncio.wait_for(asyncio.gather(read(), read(), return_exceptions=True), 20)
        assert sum(isinstance(r, RuntimeError) for r in results) == 1

    asyncio.run(main())


def test_waiting_requests_are_cancelled_at_once(model):
    streams = [model.stream("ROMEO:", ignore_eos=True) for _ in range(50)]
    streams[-1].close()
    assert streams[-1].result.finish == "interrupted" and streams[-1].result.tokens == []
    for stream in streams:
        stream.cancel()
    assert {s.wait().finish for s in streams} == {"interrupted"}


def test_loading_tells_how_far_it_is():
    seen = []
    tally.load("demo", context=32, progress=lambda done, total: seen.append((done, total))).close()
    assert seen and seen[-1][0] == seen[-1][1] > 0

    def fail(done, total):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tally.load("demo", context=32, progress=fail)
