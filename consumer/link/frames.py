"""Frames over a stream socket between a main process and its device process.

`FrameChannel` never blocks its caller on a full socket: what does not fit waits in a buffer that
the receiving thread drains. A device process that holds its interpreter lock for seconds therefore
stops neither intake nor beat; whether it has hung is for the time limits to say.
"""

import os
import select
import socket
import struct
import threading
from collections import deque
from contextlib import suppress

from ...wire.errors import ProtocolError
from .protocol import FRAME_BYTES_MAX, Message, decode, encode

_LENGTH = struct.Struct("<I")
_READ_BYTES = 256 * 1024
_GATHER_MAX = 64
# Reads after the other side has ended; what its socket can hold is far less.
_LAST_READS_MAX = 64


class ChannelClosedError(ProtocolError):
    """The other side is gone."""


class FrameReader:
    """Cuts a byte stream into frames; owns the bytes that are not a whole frame yet."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[memoryview]:
        """Add bytes; return the bodies of the frames that are complete now.

        Raises:
            ProtocolError: a frame claims more than `FRAME_BYTES_MAX`.
        """
        buffer = self._buffer
        buffer += chunk
        bodies = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > FRAME_BYTES_MAX:
                raise ProtocolError(f"a frame of {length} bytes; {FRAME_BYTES_MAX} are allowed")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            bodies.append((start + _LENGTH.size, end))
            start = end
        if not start:
            return []
        # The buffer goes with its bodies: to copy a large one would cost as much as to read it.
        self._buffer = buffer[start:]
        whole = memoryview(buffer)
        return [whole[begin:end] for begin, end in bodies]


class FrameChannel:
    """One end of the connection. Any thread may send; one thread receives.

    Owns the socket. `send` returns at once; `receive` also writes out what `send` could not.
    `end` is a descriptor that becomes readable when the process on the other side has ended: a
    process that it started may keep the socket open.
    """

    def __init__(self, sock: socket.socket, end: int | None = None) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._reader = FrameReader()
        self._lock = threading.Lock()
        self._waiting: deque[memoryview] = deque()  # guarded by _lock
        self._closed = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._poller = select.poll()  # of the receiving thread
        self._poller.register(self._wake_read, select.POLLIN)
        self._poller.register(sock, select.POLLIN)
        self._end = end
        if end is not None:
            self._poller.register(end, select.POLLIN)
        self._wants_to_write = False  # what the poller knows

    def send(self, message: Message) -> None:
        """Send a message, or keep it for the receiving thread to send.

        Raises:
            ChannelClosedError: the other side is gone.
        """
        body = encode(message)
        frame = memoryview(_LENGTH.pack(len(body)) + body)
        with self._lock:
            if self._closed:
                raise ChannelClosedError("the device connection is closed")
            if self._waiting:
                self._waiting.append(frame)
                return
            rest = frame[self._write_now(frame) :]
            if not rest:
                return
            self._waiting.append(rest)
        self.wake()

    def receive(self, timeout_s: float | None = None) -> list[Message]:
        """Wait for messages, writing out kept frames meanwhile; empty after the time-out.

        Raises:
            ChannelClosedError: the other side closed.
            ProtocolError: it sent something that is not a frame of the protocol.
        """
        if self._wants_to_write is not bool(self._waiting):
            self._wants_to_write = not self._wants_to_write
            wanted = select.POLLIN | (select.POLLOUT if self._wants_to_write else 0)
            self._poller.modify(self._sock, wanted)
        self.require_open()
        timeout_ms = None if timeout_s is None else int(timeout_s * 1000)
        happened = dict(self._poller.poll(timeout_ms))
        if self._wake_read in happened:
            self._forget_wakes()
        if self._end in happened:
            return self._last_words()
        on_socket = happened.get(self._sock.fileno(), 0)
        if on_socket & select.POLLOUT:
            self._drain()
        if on_socket & ~select.POLLOUT:
            return [decode(body) for body in self._reader.feed(self._read_now())]
        return []

    def _forget_wakes(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except OSError as error:  # a model's code may close whatever is open
            raise ChannelClosedError("the device connection is closed") from error

    def _last_words(self) -> list[Message]:
        """What the other side said before it ended."""
        bodies: list[memoryview] = []
        for _ in range(_LAST_READS_MAX):
            try:
                chunk = self._read_now()
            except ChannelClosedError:
                break
            if not chunk:
                break
            bodies += self._reader.feed(chunk)
        if not bodies:
            raise ChannelClosedError("the device process has ended")
        return [decode(body) for body in bodies]

    def require_open(self) -> None:
        """Return where it is open.

        Raises:
            ChannelClosedError: it was closed, or abandoned.
        """
        if self._closed:
            raise ChannelClosedError("the device connection is closed")

    def abandon(self) -> None:
        """Let go of the connection in a process that was forked from its owner's.

        No thread but the caller's is left, and locks may be held for ever.
        """
        self._lock = threading.Lock()
        self._closed = True
        self._waiting.clear()
        for descriptor in (self._sock.detach(), self._wake_read, self._wake_write):
            with suppress(OSError):
                os.close(descriptor)

    def waiting_bytes(self) -> int:
        """Bytes that `send` was given and the socket has not taken yet."""
        with self._lock:
            return sum(len(frame) for frame in self._waiting)

    def close(self) -> None:
        """Close; may be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._waiting.clear()
            self._sock.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def wake(self) -> None:
        """Make a blocked `receive` return.

        Raises:
            ChannelClosedError: it was closed.
        """
        try:
            os.write(self._wake_write, b"!")
        except BlockingIOError:
            return  # the pipe is full of wake-ups already
        except OSError as error:
            raise ChannelClosedError("the device connection is closed") from error

    def _write_now(self, frame: memoryview) -> int:
        try:
            return self._sock.send(frame)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ChannelClosedError(f"the device connection broke: {error}") from error

    def _drain(self) -> None:
        with self._lock:
            for _ in range(_GATHER_MAX):
                if not self._waiting:
                    return
                frame = self._waiting[0]
                try:
                    written = self._write_now(frame)
                except ChannelClosedError:
                    # What the other side said before it closed is still to be read, and then its
                    # end.
                    self._waiting.clear()
                    return
                if written < len(frame):
                    self._waiting[0] = frame[written:]
                    return
                self._waiting.popleft()

    def _read_now(self) -> bytes:
        try:
            chunk = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise ChannelClosedError(f"the device connection broke: {error}") from error
        if not chunk:
            raise ChannelClosedError("the device process closed its connection")
        return chunk
