"""A whole fleet on one machine: a private server unless one is named, a router, workers, and jobs.

Used by `batchfleet up` and by the demo. What `up` starts ends with `up`, however that ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self

from ..broker.blocking import BlockingExecutor
from ..broker.embedded import EmbeddedServer, embedded_options, is_free
from ..service.clock import Clock
from ..service.descendants import end_orphans
from ..service.events import Events
from ..service.lifecycle import StopSignal
from ..service.settings import Settings
from ..wire.errors import BatchfleetError, ServerError
from .access import Access, access_by, access_to
from .children import Child, Program, ProgramError, environment_of, program_command
from .starting import Progress, Report, deployments_in, ready_timeout_ms, silent

_POLL_S = 0.2
_READY_POLL_S = 0.02
# A program that uses all of `grace_ms` needs a moment more to exit.
_EXIT_MARGIN_MS = 2_000.0


class PortInUseError(BatchfleetError):
    """The private server cannot have the port that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessContext:
    """What a fleet gets from the process that starts it.

    `adopts`: the process adopts orphans and starts nothing beside the fleet, so that any other
    child of it is what a program of the fleet has left behind.
    """

    environ: Mapping[str, str]
    clock: Clock
    events: Events
    stop: StopSignal
    adopts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIds:
    """Process ids of a fleet.

    `server` is None where the server is not ours, `jobs` where rq is not installed.
    """

    server: int | None
    router: int | None
    consumers: tuple[int, ...]
    jobs: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The map that `up --json` prints."""
        return {
            "server": self.server,
            "router": self.router,
            "consumers": list(self.consumers),
            "jobs": self.jobs,
        }


class LocalFleet:
    """Owns the server and the programs. All calls come from the main thread.

    `start_server`, deploy what shall be served, `start_programs`, then `supervise` until the stop
    signal; `stop` at the end in any case.
    """

    def __init__(self, settings: Settings, port: int | None, process: ProcessContext) -> None:
        self._settings = settings
        self._port = port
        self._process = process
        self._server: EmbeddedServer | None = None
        self._access: Access | None = None
        self._children: list[Child] = []

    @property
    def settings(self) -> Settings:
        """The settings in force; `redis_url` is that of the private server once it is started."""
        return self._settings

    @property
    def access(self) -> Access:
        """How people and scripts reach the server."""
        return self._access or access_by(self._settings.redis_url)

    @property
    def pids(self) -> ProcessIds:
        """Process ids at the moment; a program that is about to be restarted has none."""
        pids = {child.program.label: child.pid for child in self._children}
        consumers = [pid for label, pid in pids.items() if label.startswith("consumer")]
        return ProcessIds(
            server=None if self._server is None else self._server.pid,
            router=pids.get("router"),
            consumers=tuple(pid for pid in consumers if pid is not None),
            jobs=pids.get("jobs"),
        )

    def _program_pids(self) -> list[int | None]:
        return [child.pid for child in self._children]

    def start_server(self) -> None:
        """Start a private server, unless the settings name one.

        Raises:
            PortInUseError: somebody listens on its port.
            ServerError: it did not come up, or no server program is installed.
        """
        if self._settings.redis_url or self._server is not None:
            return
        if self._port is not None and not is_free(self._port):
            raise PortInUseError(
                f"port {self._port} of 127.0.0.1 is in use, maybe by another fleet; choose another "
                "with --port, or leave it out to use a socket"
            )
        options = embedded_options(port=self._port or 0)
        server = EmbeddedServer(options, self._process.clock)
        self._server = server
        server.start()
        self._access = access_to(server)
        self._settings = replace(self._settings, redis_url=server.socket_url)

    def executor(self, name: str) -> BlockingExecutor:
        """A connection to the fleet's server, which the caller closes."""
        return BlockingExecutor(self._settings.redis_url, name)

    def start_programs(self, report: Report = silent) -> bool:
        """Start the programs and wait until all are ready; False if stopped before that.

        `report` is called every 10 seconds with what the workers load, which may take long.

        Raises:
            ProgramError: one of them ended, or was not ready in time.
            ServerError: the server failed.
        """
        environ = environment_of(self._settings, self._process.environ)
        names = {"router": "router"}
        names |= {f"consumer {at + 1}": "consumer" for at in range(self._settings.workers)}
        if find_spec("rq") is not None:
            names["jobs"] = "jobs"
        programs = [
            Program(label=label, command=program_command(program), environ=environ)
            for label, program in names.items()
        ]
        self._children = [Child(program, self._process.clock) for program in programs]
        for child in self._children:
            child.start()
        with self.executor("batchfleet-starting") as executor:
            return self._await_ready(executor, Progress(executor, self._settings.namespace, report))

    def _await_ready(self, executor: BlockingExecutor, progress: Progress) -> bool:
        clock, stop = self._process.clock, self._process.stop
        begun_ms = clock.monotonic_ms()
        timeout_ms = ready_timeout_ms(deployments_in(executor, self._settings))
        while waiting := [c.program.label for c in self._children if c.poll_ready() is None]:
            waited_ms = clock.monotonic_ms() - begun_ms
            if waited_ms > timeout_ms:
                raise ProgramError(f"{waiting[0]} was not ready after {timeout_ms / 1000:.0f} s")
            self._require_server()
            progress.after(waited_ms, waiting)
            if stop.wait(_READY_POLL_S):
                return False
        return True

    def supervise(self) -> None:
        """Restart programs that die, with back-off, until the stop signal.

        Raises:
            ServerError: the private server ended, and its data is lost.
        """
        while not self._process.stop.wait(_POLL_S):
            self.poll()

    def poll(self) -> None:
        """Check everything that runs once; see `supervise`."""
        self._require_server()
        self._end_orphans()
        for child in self._children:
            pid = child.pid
            exit_code = child.poll()
            if exit_code is not None:
                self._process.events.emit(
                    "program.lost",
                    program=child.program.label,
                    pid=pid,
                    exit_code=exit_code,
                    restart_ms=child.restart_ms,
                )

    def _require_server(self) -> None:
        if self._server is not None and not self._server.is_running:
            raise ServerError("the private server exited; its data is lost")

    def stop_programs(self) -> list[str]:
        """End router and workers within the grace period; labels of those that had to be killed."""
        clock = self._process.clock
        give_up_ms = clock.monotonic_ms() + self._settings.grace_ms + _EXIT_MARGIN_MS
        for child in self._children:
            child.ask_to_stop()
        killed = [
            child.program.label
            for child in self._children
            if not child.end(give_up_ms - clock.monotonic_ms())
        ]
        self._end_orphans()
        self._children = []
        return killed

    def _end_orphans(self) -> None:
        """End what programs that are gone have left behind."""
        if self._process.adopts:
            ours = {pid for pid in self._program_pids() if pid is not None}
            if self._server is not None and self._server.is_running:
                ours.add(self._server.pid)
            end_orphans(ours)

    def stop(self) -> None:
        """End everything. May be called twice, and after a start that failed half-way."""
        self.stop_programs()
        server, self._server = self._server, None
        if server is not None:
            server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
