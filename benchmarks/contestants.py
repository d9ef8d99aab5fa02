"""The contestants of `floor.py`: ours and the raw queue, each with a server of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchfleet.broker.embedded import EmbeddedServer, embedded_options
from tests.support.fleet import UNHURRIED, draft_of, running_fleet

from .bursts import Burst, Load
from .processes import Conversation, children_of, cpu_s

OURS = "batchfleet"
RAW = "raw floor"

_START_TIMEOUT_S = 60.0
_BURST_TIMEOUT_S = 120.0


class LoadedSystem:
    """A load client and the processes that serve it; a `Contestant`."""

    def __init__(self, name: str, client: Conversation, pids: Mapping[str, Sequence[int]]) -> None:
        self.name = name
        self._client = client
        self._pids = {"client": (client.pid,), **pids}

    def run(self, load: Load) -> Burst:
        """Run one burst.

        Raises:
            MeasuringError: a process ended, or the burst took over two minutes.
        """
        before = cpu_s(self._pids)
        question = {"requests": load.requests, "callers": load.callers}
        times = self._client.ask(question, _BURST_TIMEOUT_S)
        after = cpu_s(self._pids)
        return Burst(**times, cpu_s={name: after[name] - before[name] for name in after})


@contextmanager
def ours(limits: Mapping[str, Any]) -> Iterator[LoadedSystem]:
    """Our fleet with the model `noop`: one router, one worker; `limits` override the model's."""
    with ExitStack() as stack:
        server = stack.enter_context(_running_server())
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="batchfleet-bench-")))
        settings = {**UNHURRIED, "threads": 1, "log_level": "warning"}
        fleet = stack.enter_context(running_fleet(server, "bench", folder, **settings))
        (worker,) = fleet.bring_up(draft_of("noop", "noop", limits=limits))
        client = Conversation("benchmarks.client", fleet.url, fleet.namespace)
        stack.enter_context(client).start(_START_TIMEOUT_S)
        pids = {
            "router": (fleet.routers[0].pid,),
            "consumer": (worker.pid,),
            "device": children_of(worker.pid),
            "server": (server.pid,),
        }
        yield LoadedSystem(OURS, client, pids)


@contextmanager
def _running_server() -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(embedded_options())
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def raw_floor() -> Iterator[LoadedSystem]:
    """The raw queue: one router, one worker, and the same server program with the same options."""
    with ExitStack() as stack:
        server = stack.enter_context(_running_server())
        programs = {
            part: stack.enter_context(
                Conversation(f"benchmarks.raw_floor.{part}", server.socket_url)
            )
            for part in ("router", "consumer", "client")
        }
        for program in programs.values():
            program.start(_START_TIMEOUT_S)
        client = programs.pop("client")
        pids = {part: (program.pid,) for part, program in programs.items()}
        yield LoadedSystem(RAW, client, {**pids, "server": (server.pid,)})
