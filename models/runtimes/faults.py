"""Faults on demand, so that a test can make one row of a batch misbehave in one stage."""

import ctypes
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from ...wire.names import shown

STAGES = ("preprocess", "predict", "postprocess")
_SPELLING = re.compile(r"([a-z_]+)(?::([0-9]{1,6}))?(?:@([a-z]+))?(?=\s|$)")
_MEGABYTE = 1024 * 1024


class InjectedFaultError(RuntimeError):
    """Raised by the switch `raise`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A switch, its number (milliseconds or megabytes; -1 = the default) and its stage."""

    switch: str
    value: int = -1
    stage: str = "predict"

    def strike(self, stage: str, kept: list[bytes]) -> None:
        """Do the harm if it is this stage's turn; `kept` holds memory that is never given back."""
        act = _ACTS.get(self.switch)
        if act is not None and stage == self.stage:
            act(self.value, kept)

    def spoils(self, switch: str, stage: str) -> bool:
        """Tell whether the output of this stage must be spoilt in this way."""
        return self.switch == switch and self.stage == stage


def parse_fault(text: str) -> Fault:
    """Read `switch[:number][@stage]`; whatever follows a blank is ignored.

    Raises:
        ValueError: not a switch, or not one for that stage.
    """
    match = _SPELLING.match(text)
    if match is None:
        raise ValueError(f"{shown(text)} is not a fault; write switch[:number][@stage]")
    switch, value, stage = match.groups("")
    fault = Fault(switch, int(value or -1), stage or "predict")
    if switch not in SWITCHES:
        raise ValueError(f"there is no fault {switch!r}; there are: {', '.join(SWITCHES)}")
    if fault.stage not in STAGES:
        raise ValueError(f"fault {switch!r} cannot occur in {fault.stage!r}")
    return fault


def sleep_ms(duration_ms: float) -> None:
    """Let real time pass off the CPU, as a device at work does."""
    time.sleep(duration_ms / 1000)


def _sleep(value: int, _kept: list[bytes]) -> None:
    sleep_ms(100 if value < 0 else value)


def _raise(_value: int, _kept: list[bytes]) -> None:
    raise InjectedFaultError("the model was told to raise")


def _hang(_value: int, _kept: list[bytes]) -> None:
    # Without a time-out on purpose: to end this is the duty of the time limits.
    threading.Event().wait()


def _segv(_value: int, _kept: list[bytes]) -> None:
    ctypes.string_at(0)


def _grow(value: int, kept: list[bytes]) -> None:
    # Not zeros, for which the kernel would not hand out a page.
    kept.append(b"\x01" * ((64 if value < 0 else value) * _MEGABYTE))


def _hold_gil(value: int, _kept: list[bytes]) -> None:
    # PyDLL, unlike CDLL, keeps the interpreter lock for as long as the call lasts.
    ctypes.PyDLL(None).usleep((1000 if value < 0 else value) * 1000)


def _memory_error(_value: int, _kept: list[bytes]) -> None:
    raise MemoryError("the model was told to run out of memory")


_ACTS: MappingProxyType[str, Callable[[int, list[bytes]], None]] = MappingProxyType(
    {
        "sleep": _sleep,
        "raise": _raise,
        "hang": _hang,
        "segv": _segv,
        "grow": _grow,
        "hold_gil": _hold_gil,
        "memory_error": _memory_error,
    }
)
_SPOILERS = ("wrong_count", "nan")
SWITCHES = (*_ACTS, *_SPOILERS)
