"""A device process as the main process sees it: a child, a channel, and its end."""

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...service.descendants import MARK, ProcessEnd, ProcessTree
from ...service.lifecycle import spawn
from .device_environment import device_environment
from .frames import ChannelClosedError, FrameChannel
from .protocol import EXIT_MODEL_LEFT, Message

_SOCKET_BUFFER_BYTES = 1024 * 1024
_REAP_TIMEOUT_S = 10
_MARK_BYTES = 8
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

    def look(self) -> None:
        """Remember which processes have come of it, since they are to end with it."""

    def kill(self, reason: str) -> None:
        """End the process now; the receiving thread learns of it by its closed channel."""

    def end(self, patience_s: float, why: str = "") -> str:
        """Wait for the process to end, kill it if it does not, and all that came of it.

        Returns:
            How it ended; `why` where it had to be killed.
        """


class DeviceLink:
    """Owns one device process. Any thread may send; the thread that started it receives.

    The process is over when it has ended, whoever else holds its end of the connection; what it
    said until then counts.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        at_terminal: bool = False,
    ) -> None:
        """Start `command`; `at_terminal` leaves it the terminal, so that a debugger works.

        `environ` is what it gets of our environment; nothing but the harmless by default.

        Its standard output goes where its log goes: ours is for our own words, and what a model, a
        library of it or a child of either prints must neither mix with them nor pass through us.
        """
        if environ is None:
            environ = device_environment(os.environ, "")
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        # Nothing is ever written to it: it breaks when we end, and the kernel signals its reader.
        lifeline, self._lifeline = os.pipe()
        descriptors = (theirs.fileno(), lifeline)
        command = [*command, "--fd", str(theirs.fileno()), "--parent", str(os.getpid())]
        command += ["--lifeline", str(lifeline)]
        mark = secrets.token_hex(_MARK_BYTES)
        with theirs:
            self._process: subprocess.Popen[bytes] = spawn(
                command,
                pass_fds=descriptors,
                start_new_session=not at_terminal,
                stdin=None if at_terminal else subprocess.DEVNULL,
                stdout=log_stream(),
                env={**environ, MARK: mark},
            )
        os.close(lifeline)
        self._tree = ProcessTree(self._process.pid, mark, has_session=not at_terminal)
        self._end = ProcessEnd(self._process)
        self._channel = FrameChannel(ours, self._end.fileno())
        self.kill_reason = ""
        self._ended_by: str | None = None  # how it ended, once nothing is left of it

    @property
    def pid(self) -> int:
        """See `Link`."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """See `Link`."""
        if self._end.wait(0):
            raise ChannelClosedError("the device process has ended")
        self._channel.send(message)

    def receive(self, timeout_s: float) -> list[Message]:
        """See `Link`."""
        return self._channel.receive(timeout_s)

    def wake(self) -> None:
        """See `Link`."""
        self._channel.wake()

    def look(self) -> None:
        """See `Link`."""
        self._tree.look()

    def kill(self, reason: str) -> None:
        """See `Link`."""
        self.kill_reason = self.kill_reason or reason
        self._kill()

    def _kill(self) -> None:
        if self._ended_by is None and not self._end.wait(0):
            self._tree.look()
            self._process.send_signal(signal.SIGKILL)

    def end(self, patience_s: float, why: str = "") -> str:
        """See `Link`."""
        if self._ended_by is None:
            self._ended_by = self._finish(patience_s, why)
        return self._ended_by

    def _finish(self, patience_s: float, why: str) -> str:
        had_to = not self._end.wait(patience_s)
        if had_to:
            self._kill()
            self._end.wait(_REAP_TIMEOUT_S)
        self._tree.end()
        code = self._process.wait(_REAP_TIMEOUT_S)
        self._channel.close()
        self._end.close()
        os.close(self._lifeline)
        if self.kill_reason:
            return self.kill_reason
        # It may have been ending already.
        return why if had_to and why and code == -signal.SIGKILL else how_ended(code)


def how_ended(code: int) -> str:
    """An exit code in words."""
    if code == EXIT_MODEL_LEFT:
        return f"its code called exit (exit code {code})"
    return f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
