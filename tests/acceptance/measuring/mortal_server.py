"""A server that can be frozen, killed and brought back, and a fleet at default settings on it."""

import os
import signal
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from random import Random

from batchfleet.broker.embedded import EmbeddedServer, ServerOptions
from tests.support.fleet import UNHURRIED, running_fleet, until
from tests.support.server import KINDS, ServerAddress, program_of

NAMESPACE = "mortal"
_PORTS = range(20_000, 30_000)
_PORT_TRIES = 100
_READY_S = 60.0


class MortalServer:
    """One server process after the other on one port and one folder of data; AOF, fsync everysec.

    Start it from the main thread: the server ends with the thread that started it.
    """

    def __init__(self, folder, port):
        self._server = EmbeddedServer(
            ServerOptions(program=program_of(KINDS[0]), port=port, folder=folder, append_only=True)
        )

    @property
    def url(self):
        return self._server.url

    @property
    def pid(self):
        return self._server.pid

    def start(self):
        """Start it, on the data that the last one left, and wait until it answers."""
        self._server.start()

    def stop(self):
        """SIGTERM: it writes down what it has. May be called twice."""
        self._server.stop()

    def kill(self):
        """SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        self._server.stop()

    def freeze(self):
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.pid, signal.SIGCONT)


@contextmanager
def mortal_server():
    """A running server; ended at the end, whatever state it is in."""
    with tempfile.TemporaryDirectory(prefix="batchfleet-mortal-") as folder:
        server = MortalServer(Path(folder), _lasting_port())
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _lasting_port():
    """A port that the system never hands out to whoever connects.

    While the server is down, a client that tries a port of that range again and again is now and
    then given the very same one, talks to itself, and the server cannot have it back.
    """
    chance = Random(os.getpid())
    for _ in range(_PORT_TRIES):
        port = chance.choice(_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise OSError(f"{_PORT_TRIES} ports of {_PORTS} are all taken")


@contextmanager
def mortal_fleet(server, **settings):
    """A fleet without programs yet, whose settings are the defaults but for those named."""
    address = ServerAddress(url=server.url, socket_url=server.url, pid=server.pid)
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-mortal-") as folder,
        running_fleet(address, NAMESPACE, Path(folder), **UNHURRIED | settings) as fleet,
    ):
        yield fleet


@contextmanager
def served_fleet(server, *drafts, workers=2, **settings):
    """A router and workers, ready for these drafts."""
    with mortal_fleet(server, **settings) as fleet:
        fleet.bring_up(*drafts, workers=workers, ready_s=_READY_S)
        for draft in drafts:
            # Where loading took long, the router refuses until it looks at the fleet again.
            until(lambda m=draft.model: _answers(fleet, m), f"{draft.model} answers")
        yield fleet


def _answers(fleet, model):
    """Whether a request is answered; it leaves nothing behind for long."""
    return fleet.ask(model, timeout_ms="10000", result_ttl_ms="1000").status == "ok"
