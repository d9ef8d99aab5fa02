"""A device process as the main process sees it: a child, a channel, and its end."""

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import Protocol

from ..service.lifecycle import spawn
from .frames import FrameChannel
from .protocol import EXIT_MODEL_LEFT, Message

_SOCKET_BUFFER_BYTES = 1024 * 1024
_REAP_TIMEOUT_S = 10
_STDERR = 2


def log_stream() -> int:
    """What to give a child as standard output that shall print where logs go."""
    try:
        os.fstat(_STDERR)
    except OSError:  # we were started without one
        return subprocess.DEVNULL
    return _STDERR


class Link(Protocol):
    """A device process to talk to. Any thread may send; the thread that opened it receives."""

    kill_reason: str

    @property
    def pid(self) -> int:
        """Process id of the device process."""

    def send(self, message: Message) -> None:
        """Send, or keep for the receiving thread to send.

        Raises:
            ChannelClosedError: the device process is gone.
        """

    def receive(self, timeout_s: float) -> list[Message]:
        """Wait for messages.

        Raises:
            ChannelClosedError: the device process is gone.
            ProtocolError: it does not speak the protocol.
        """

    def wake(self) -> None:
        """Make a waiting `receive` return."""

    def kill(self, reason: str) -> None:
        """End the process now; the receiving thread learns of it by its closed channel."""

    def end(self, patience_s: float) -> str:
        """Wait for the process to end, kill it if it does not; returns how it ended."""


class DeviceLink:
    """Owns one device process. Any thread may send; the thread that started it receives."""

    def __init__(self, command: Sequence[str], *, at_terminal: bool = False) -> None:
        """Start `command`; `at_terminal` leaves it the terminal, so that a debugger works.

        Its standard output goes where its log goes: ours is for our own words, and what a model, a
        library of it or a child of either prints must neither mix with them nor pass through us.
        """
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        command = [*command, "--fd", str(theirs.fileno()), "--parent", str(os.getpid())]
        with theirs:
            self._process: subprocess.Popen[bytes] = spawn(
                command,
                pass_fds=(theirs.fileno(),),
                start_new_session=not at_terminal,
                stdin=None if at_terminal else subprocess.DEVNULL,
                stdout=log_stream(),
            )
        self._channel = FrameChannel(ours)
        self.kill_reason = ""

    @property
    def pid(self) -> int:
        """Process id of the device process."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Send, or keep for the receiving thread to send.

        Raises:
            ChannelClosedError: the device process is gone.
        """
        self._channel.send(message)

    def receive(self, timeout_s: float) -> list[Message]:
        """Wait for messages.

        Raises:
            ChannelClosedError: the device process is gone.
            ProtocolError: it does not speak the protocol.
        """
        return self._channel.receive(timeout_s)

    def wake(self) -> None:
        """Make a waiting `receive` return."""
        self._channel.wake()

    def kill(self, reason: str) -> None:
        """End the process now; the receiving thread learns of it by its closed channel."""
        self.kill_reason = self.kill_reason or reason
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)

    def end(self, patience_s: float) -> str:
        """Wait for the process to end, kill it if it does not; returns how it ended."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait(_REAP_TIMEOUT_S)
        self._channel.close()
        if self.kill_reason:
            return self.kill_reason
        if code == EXIT_MODEL_LEFT:
            return f"its code called exit (exit code {code})"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
