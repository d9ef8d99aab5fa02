"""Waiting for time to pass, inside an event loop and outside of one."""

import asyncio
import threading
from contextlib import suppress


async def pause(seconds, unless=None):
    """Return after so many seconds (at once if negative), or as soon as the event is set."""
    event = asyncio.Event() if unless is None else unless
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()


def pause_s(seconds):
    """Return after so many seconds, at once if negative; for code without an event loop."""
    threading.Event().wait(max(0.0, seconds))
