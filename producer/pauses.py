"""The pauses of an asyncio task between tries to reach a server."""

import asyncio
import random

from ..service.back_off import BackOff


class Pauses:
    """The pauses of one task."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._policy = BackOff()
        self._failures = 0

    def reset(self) -> None:
        """It worked: the next pause is short again."""
        self._failures = 0

    async def pause(self) -> None:
        """Wait; the next pause is longer."""
        self._failures += 1
        over = asyncio.Event()
        delay_s = self._policy.delay_s(self._failures, self._chance)
        asyncio.get_running_loop().call_later(delay_s, over.set)
        await over.wait()
