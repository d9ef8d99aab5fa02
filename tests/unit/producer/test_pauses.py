import asyncio
import random

import pytest

from batchfleet.producer.pauses import Pauses


class RecordingLoop(asyncio.SelectorEventLoop):
    """Delays take no time here, and are remembered."""

    def __init__(self):
        super().__init__()
        self.delays = []

    def call_later(self, delay, callback, *arguments, context=None):
        self.delays.append(delay)
        return self.call_soon(callback, *arguments, context=context)


@pytest.fixture
def loop():
    loop = RecordingLoop()
    yield loop
    loop.close()


def test_pauses_grow_to_a_bound_and_start_small_again(loop):
    pauses = Pauses(random.Random(1))

    async def fail_often():
        for _ in range(12):
            await pauses.pause()
        pauses.reset()
        await pauses.pause()

    loop.run_until_complete(fail_often())
    *growing, again = loop.delays
    assert 0.025 <= growing[0] <= 0.05
    assert all(1.0 <= delay <= 2.0 for delay in growing[6:])
    assert 0.025 <= again <= 0.05
