"""Pauses between tries to reach a server: growing, bounded, and spread by chance."""

import asyncio
import random

_FIRST_S = 0.05
_LONGEST_S = 2.0


class BackOff:
    """The pauses of one task."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._next_s = _FIRST_S

    def reset(self) -> None:
        """It worked: start small again."""
        self._next_s = _FIRST_S

    async def pause(self) -> None:
        """Wait; the next pause is twice as long, up to 2 s."""
        over = asyncio.Event()
        delay_s = self._next_s * self._chance.uniform(0.5, 1.0)
        asyncio.get_running_loop().call_later(delay_s, over.set)
        self._next_s = min(2 * self._next_s, _LONGEST_S)
        await over.wait()
