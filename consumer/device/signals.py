"""Signals of a device process: it outlasts those that ask for an end, its children do not."""

import signal
from types import FrameType
from typing import Any

_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


def outlast_signals() -> None:
    """Go on at an interrupt of the terminal or a stop of the whole group.

    When the process ends is for the main process to say. The signals are handled and not ignored:
    programs that a model's code starts would inherit that, as they would a mask.
    """
    for number in _DEFAULTS:
        signal.signal(number, _go_on)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())


def forget_signals() -> None:
    """In a forked child: end at these signals as any program does."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is _go_on:
            signal.signal(number, default)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    return
