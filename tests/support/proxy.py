"""A TCP proxy that breaks connections on demand; it stands between one process and its server.

Everything happens on the proxy's own thread. A call returns once it is in force.
"""

import selectors
import socket
import struct
import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

_CHUNK_BYTES = 256 * 1024
_HELD_BYTES_MAX = 4 * 1024 * 1024
_CALL_TIMEOUT_S = 10.0
_LINGER_NOT = struct.pack("ii", 1, 0)  # closing sends RST
_BACKLOG = 128


@dataclass(eq=False)
class Side:
    """One end of a connection, and what is to be sent to it: (when, bytes)."""

    sock: socket.socket
    waiting: deque = field(default_factory=deque)
    held_bytes: int = 0

    def due(self, now_s):
        return bool(self.waiting) and self.waiting[0][0] <= now_s


@dataclass(eq=False)
class Pair:
    """A client's connection and ours to the server. `doomed`: ends with the server's next word."""

    client: Side
    server: Side
    frozen: bool = False
    doomed: bool = False

    def other(self, side):
        return self.server if side is self.client else self.client


@dataclass
class Trap:
    """Waits for a request that contains all `needles`, as often as `left` says."""

    needles: tuple[bytes, ...]
    left: int
    forwards: bool
    sprung: threading.Event = field(default_factory=threading.Event)


class FaultProxy:
    """Forwards between `port` and the server's port. `start` and `stop` may be called twice."""

    def __init__(self, server_port, password=""):
        self._login = f":{password}@" if password else ""
        self._server = ("127.0.0.1", server_port)
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._calls = deque()  # (function, done); appended by callers, taken by the thread
        self._pairs = []
        self._listener = None
        self._frozen = False
        self._delay_s = (0.0, 0.0)
        self._trap = None
        self._over = False
        self._thread = threading.Thread(target=self._run, name="fault proxy", daemon=True)
        self.port = 0

    # For tests; any thread.

    def start(self):
        if not self._thread.ident:
            self._open()
            self._wake_read.setblocking(False)
            self._selector.register(self._wake_read, selectors.EVENT_READ)
            self._thread.start()
        return self

    def stop(self):
        if self._thread.is_alive():
            self._call(self._end)
            self._thread.join(_CALL_TIMEOUT_S)
        assert not self._thread.is_alive(), "the proxy's thread did not end"

    @property
    def url(self):
        return f"redis://{self._login}127.0.0.1:{self.port}/0"

    def connections(self):
        """How many connections are open."""
        counted = []
        self._call(lambda: counted.append(len(self._pairs)))
        return counted[0]

    def cut(self):
        """End every connection in good order (FIN). New ones are let in."""
        self._call(lambda: self._close_all(reset=False))

    def reset(self):
        """End every connection by RST. New ones are let in."""
        self._call(lambda: self._close_all(reset=True))

    def freeze(self):
        """A black hole: everything stays open, and nothing is forwarded, for new ones as well."""
        self._call(lambda: self._set_frozen(frozen=True))

    def freeze_present(self):
        """A black hole for the connections that there are now; new ones work."""
        self._call(self._freeze_present)

    def thaw(self):
        """Forward again, what was held included."""
        self._call(lambda: self._set_frozen(frozen=False))

    def delay(self, to_server_ms=0, to_client_ms=0):
        """Hold back what comes from now on for so long, each way."""
        self._call(lambda: self._set_delay(to_server_ms / 1000, to_client_ms / 1000))

    def refuse(self):
        """End every connection and refuse new ones."""
        self._call(self._refuse)

    def admit(self):
        """Let new connections in again, on the same port."""
        self._call(self._open)

    def swallow_reply(self, *needles, times=1):
        """Forward the next request that contains all `needles`, and end its connection instead of
        the reply; so with as many requests as `times` says.

        Returns an event that is set when it has happened so often.
        """
        return self._set_trap(Trap(needles, times, forwards=True))

    def cut_request(self, *needles, times=1):
        """As `swallow_reply`, but the request is not forwarded either."""
        return self._set_trap(Trap(needles, times, forwards=False))

    # The thread.

    def _call(self, function):
        done = threading.Event()
        self._calls.append((function, done))
        self._wake_write.send(b"!")
        assert done.wait(_CALL_TIMEOUT_S), "the proxy does not answer"

    def _run(self):
        while not self._over:
            for key, mask in self._selector.select(self._next_due_s()):
                if key.fileobj is self._wake_read:
                    self._take_calls()
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._pairs:
                    self._serve(key.data, key.fileobj, mask)
            for pair in list(self._pairs):
                self._flush(pair)
        self._close_all(reset=False)
        for sock in (self._listener, self._wake_read, self._wake_write):
            if sock is not None:
                sock.close()
        self._selector.close()

    def _take_calls(self):
        self._wake_read.recv(4096)
        while self._calls:
            function, done = self._calls.popleft()
            function()
            done.set()

    def _next_due_s(self):
        heads = [
            side.waiting[0][0]
            for pair in self._pairs
            for side in (pair.client, pair.server)
            if side.waiting and not self._is_frozen(pair)
        ]
        # What is due and still there waits for room in a socket, which the selector tells.
        later = [at for at in heads if at > monotonic()]
        return max(0.0, min(later) - monotonic()) if later else None

    def _accept(self):
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # it has gone again
        try:
            server = socket.create_connection(self._server, timeout=1.0)
        except OSError:
            client.close()
            return
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = Pair(Side(client), Side(server))
        self._pairs.append(pair)
        for side in (pair.client, pair.server):
            self._selector.register(side.sock, selectors.EVENT_READ, pair)

    def _serve(self, pair, sock, mask):
        if not mask & selectors.EVENT_READ or self._is_frozen(pair):
            return
        source = pair.client if sock is pair.client.sock else pair.server
        try:
            chunk = sock.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if chunk and self._passes(pair, source, chunk):
            self._hold(pair, pair.other(source), chunk)
        else:
            self._close(pair, reset=False)

    def _passes(self, pair, source, chunk):
        """Whether a chunk goes on; a request springs the trap that it falls into."""
        if source is pair.server:
            return not pair.doomed
        trap = self._trap
        if trap is None or not all(needle in chunk for needle in trap.needles):
            return True
        trap.left -= 1
        if trap.left <= 0:
            self._trap = None
            trap.sprung.set()
        pair.doomed = trap.forwards
        return trap.forwards

    def _hold(self, pair, target, chunk):
        delay_s = self._delay_s[0 if target is pair.server else 1]
        target.waiting.append((monotonic() + delay_s, chunk))
        target.held_bytes += len(chunk)
        self._flush(pair)

    def _flush(self, pair):
        if self._is_frozen(pair) or pair not in self._pairs:
            return
        for side in (pair.client, pair.server):
            try:
                self._send_due(side)
            except OSError:
                self._close(pair, reset=False)
                return
        self._watch(pair)

    def _send_due(self, side):
        while side.due(monotonic()):
            at, chunk = side.waiting.popleft()
            try:
                sent = side.sock.send(chunk)
            except BlockingIOError:
                sent = 0
            side.held_bytes -= sent
            if sent < len(chunk):
                side.waiting.appendleft((at, chunk[sent:]))
                return

    def _watch(self, pair):
        """Have the selector tell what this pair waits for; nothing while it is frozen."""
        for side in (pair.client, pair.server):
            wanted = 0
            if not self._is_frozen(pair):
                if pair.other(side).held_bytes < _HELD_BYTES_MAX:
                    wanted |= selectors.EVENT_READ
                if side.due(monotonic()):
                    wanted |= selectors.EVENT_WRITE
            self._set_events(side.sock, wanted, pair)

    def _set_events(self, sock, wanted, pair):
        known = self._selector.get_map().get(sock)
        if known is not None and known.events == wanted:
            return
        if known is not None:
            self._selector.unregister(sock)
        if wanted:
            self._selector.register(sock, wanted, pair)

    def _is_frozen(self, pair):
        return self._frozen or pair.frozen

    # What the calls do; on the thread.

    def _end(self):
        self._over = True

    def _open(self):
        if self._listener is not None:
            return
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._selector.register(self._listener, selectors.EVENT_READ)

    def _refuse(self):
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None
        self._close_all(reset=True)

    def _set_frozen(self, *, frozen):
        self._frozen = frozen
        for pair in list(self._pairs):
            pair.frozen = False
            self._watch(pair)

    def _freeze_present(self):
        for pair in self._pairs:
            pair.frozen = True
            self._watch(pair)

    def _set_delay(self, to_server_s, to_client_s):
        self._delay_s = (to_server_s, to_client_s)

    def _set_trap(self, trap):
        def place():
            self._trap = trap

        self._call(place)
        return trap.sprung

    def _close_all(self, *, reset):
        for pair in list(self._pairs):
            self._close(pair, reset=reset)

    def _close(self, pair, *, reset):
        self._pairs.remove(pair)
        for side in (pair.client, pair.server):
            self._set_events(side.sock, 0, pair)
            if reset:
                with suppress(OSError):
                    side.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            side.sock.close()


@contextmanager
def running_proxy(server_port):
    """A proxy for as long as the block lasts."""
    proxy = FaultProxy(server_port).start()
    try:
        yield proxy
    finally:
        proxy.stop()
