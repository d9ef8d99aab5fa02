import asyncio

from batchfleet.broker.errors import UnreachableError
from batchfleet.producer.removal import ReplyRemover
from batchfleet.wire.keys import ModelKeys

KEYS = ModelKeys("n", "m")
OTHER = ModelKeys("n", "other")


class RecordingExecutor:
    """Stands where the server would: says how many keys each command removes."""

    def __init__(self, error=None):
        self.sizes = []
        self.ran = asyncio.Event()
        self._error = error

    async def run_each(self, commands):
        for command in commands:
            assert command.parts[0] == "UNLINK"
            self.sizes.append(len(command.parts) - 1)
        self.ran.set()
        if self._error is not None:
            raise self._error


async def test_ids_of_one_tick_go_with_few_commands():
    executor = RecordingExecutor()
    remover = ReplyRemover(executor, "t")
    for number in range(1000):
        remover.add(KEYS, f"id-{number}")
    remover.add(OTHER, "a")
    await remover.close()
    assert executor.sizes == [256, 256, 256, 232, 1]


async def test_a_reply_handed_over_often_is_removed_once_and_soon():
    executor = RecordingExecutor()
    remover = ReplyRemover(executor, "t")
    for _ in range(5):
        remover.add(KEYS, "same")
    async with asyncio.timeout(10):
        await executor.ran.wait()
    await remover.close()
    assert executor.sizes == [1]


async def test_nobody_hears_of_a_server_that_is_away():
    executor = RecordingExecutor(UnreachableError("away"))
    remover = ReplyRemover(executor, "t")
    remover.add(KEYS, "a")
    await remover.close()
    assert executor.sizes == [1]
