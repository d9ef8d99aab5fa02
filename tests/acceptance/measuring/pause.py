"""Waiting for time to pass inside an event loop."""

import asyncio
from contextlib import suppress


async def pause(seconds, unless=None):
    """Return after so many seconds (at once if negative), or as soon as the event is set."""
    event = asyncio.Event() if unless is None else unless
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
