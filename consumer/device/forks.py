"""Children that a model's code forks: they live, and never act in the device process's name."""

import os

from ..link.frames import FrameChannel
from .signals import forget_signals


def isolate_forks(channel: FrameChannel) -> None:
    """Have forked children lose the connection, and end at signals as any program does.

    One that comes back from the model's code into ours finds the connection closed, and leaves.
    """

    def in_child() -> None:
        channel.abandon()
        forget_signals()

    os.register_at_fork(after_in_child=in_child)
