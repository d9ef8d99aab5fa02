"""A device process that is none: its threads run in this process, behind the same connection."""

import os
import socket
import threading

import structlog

from ..consumer.device.faults import ModelLeftError, describe
from ..consumer.device.opened import Opener
from ..consumer.device.process import DeviceProcess
from ..consumer.link.frames import ChannelClosedError, FrameChannel
from ..consumer.link.protocol import Message
from ..service.clock import Clock

_SOCKET_BUFFER_BYTES = 1024 * 1024
_CUT_S = 5.0


class DeviceThread:
    """Runs model code on threads of this process; what a worker sees is a `Link`.

    A thread cannot be killed: one that hangs is cut off and left behind, as its process would be
    ended, and the worker starts another.
    """

    def __init__(self, open_files: Opener, clock: Clock) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
        self._channel = FrameChannel(ours)
        self._socket = theirs
        self._device_channel = FrameChannel(theirs)
        self._logger = structlog.get_logger().bind(process="device")
        self._device = DeviceProcess(
            self._device_channel, open_files, clock, self._logger, self._crashed
        )
        self._cause = "it ended"
        self._over = threading.Event()
        self.kill_reason = ""
        threading.Thread(target=self._serve, name="device process", daemon=True).start()

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def _serve(self) -> None:
        try:
            self._device.serve()
        except BaseException as error:  # noqa: BLE001  cuts the connection, which its owner sees
            self._crashed(error)
        finally:
            self._cut()
            self._device.give_up()
            self._over.set()
            # Not before: a number that is free again may become that of another file.
            self._device.join()
            self._device_channel.close()

    def _crashed(self, error: BaseException) -> None:
        """A bug, or a model that called `exit`: what ends a device process ends this one."""
        if not isinstance(error, ChannelClosedError):
            if not isinstance(error, ModelLeftError):  # which is told already
                self._logger.critical("device_thread_crashed", exc_info=error)
            self._cause = describe(error)
        self._device.give_up()
        self._cut()

    def _cut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed already

    def send(self, message: Message) -> None:
        """Send, or keep for the receiving thread to send; see `Link`."""
        self._channel.send(message)

    def receive(self, timeout_s: float) -> list[Message]:
        """Wait for messages; see `Link`."""
        return self._channel.receive(timeout_s)

    def wake(self) -> None:
        """Make a waiting `receive` return."""
        self._channel.wake()

    def look(self) -> None:
        """Nothing has to end with it: what its code starts belongs to this process."""

    def kill(self, reason: str) -> None:
        """Cut the connection; what runs is left behind, and its results go nowhere."""
        self.kill_reason = self.kill_reason or reason
        self._cut()

    def end(self, patience_s: float, why: str = "") -> str:
        """Wait for the end, cut the connection if it does not come; returns how it ended."""
        is_over = self._over.wait(patience_s)
        self._cut()
        self._over.wait(_CUT_S)
        self._channel.close()
        return self.kill_reason or (self._cause if is_over or not why else why)
