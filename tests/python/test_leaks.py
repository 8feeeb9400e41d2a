# SPDX-License-Identifier: Apache-2.0
"""Memory and files stay as they are over 10,000 short generations."""

import asyncio
import gc
import os


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def files():
    return len(os.listdir("/proc/self/fd"))


def test_ten_thousand_generations(model):
    prompts = ["ROMEO:", "O", [1, 2, 3]]

    async def one(i):
        async for _ in model.stream(prompts[i % 3], max_tokens=2, seed=i):
            pass

    def generations(n):
        for i in range(n // 4):
            model.generate(prompts[i % 3], max_tokens=1, seed=i, prefix_key="k")
            list(model.stream(prompts[i % 3], max_tokens=2, seed=i))
            asyncio.run(one(i)) if i % 10 == 0 else model.generate_many(["O"], max_tokens=1)
            model.stream("O", ignore_eos=True).close()
        gc.collect()
        return resident(), files()

    before = generations(2000)
    after = generations(10000)
    assert after[1] == before[1]
    assert after[0] - before[0] < 4 << 20, f"{before[0]} to {after[0]} bytes"


def test_models_give_their_memory_back():
    import tally

    def load(n):
        for _ in range(n):
            with tally.load("demo", context=64) as m:
                m.generate("O", max_tokens=1)
            tally.load("demo", context=64).generate("O", max_tokens=1)  # never closed
        gc.collect()
        return resident(), files()

    before = load(10)
    after = load(40)
    assert after[1] == before[1] and after[0] - before[0] < 8 << 20, (before, after)
