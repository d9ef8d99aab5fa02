"""A model served from its file while somebody works on it: what `batchfleet dev` runs.

A private server, a router, and a worker in this process. Each state of the file becomes a version
of its own, loaded in a device process of its own beside the one that serves; it takes over when it
is ready, and the one before ends when its last request does. A state that cannot be loaded changes
nothing but the terminal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..broker import membership
from ..consumer.link.device_command import device_command
from ..consumer.link.device_environment import device_environment
from ..consumer.link.link import DeviceLink
from ..consumer.program import ConsumerProgram
from ..consumer.worker.context import Devices
from ..models.cache import default_cache
from ..models.drafting import PublishOptions, draft_of_file
from ..models.environment_rule import LOCKED
from ..models.environments import build_locked
from ..models.manifest import Manifest
from ..models.store import Store
from ..service.clock import Clock
from ..service.lifecycle import guarded_thread
from ..service.settings import Settings
from ..wire.announcements import READY, REFUSED, WorkerAnnouncement
from ..wire.deployment import LIMIT_ROWS
from ..wire.errors import BatchfleetError
from . import deployment
from .deployment import Operator
from .local_fleet import LocalFleet, ProcessContext
from .starting import Report

REFRESH_MS = 200
GRACE_MS = 2_000
# The router follows a new record within one refresh; the second one is for a slow machine.
_ROUTER_REFRESHES = 2
_JOIN_MARGIN_S = 10.0
# Longer than an editor takes to put a new file in an old one's place.
_GONE_MS = 1_000
# Somebody may stand in a debugger: no stage and no request runs out of time meanwhile.
_LIFTED = ("timeout_ms", "load_ms", "preprocess_ms", "predict_ms", "postprocess_ms")


def development_settings(settings: Settings, store: str, environment: str = "") -> Settings:
    """Settings of a fleet for one developer: private, quick to notice, and of `store` alone.

    `environment` is one that was named on the command line, which allows it to run.
    """
    allowed = [settings.allow_environments or "built", environment]
    return replace(
        settings,
        redis_url="",
        store=store,
        models="*",
        workers=0,
        allow_code="any",  # the store holds nothing but the file that was named
        allow_environments=",".join(term for term in allowed if term),
        refresh_ms=REFRESH_MS,
        grace_ms=GRACE_MS,
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the watched files looked like: path → modification time, size and inode."""

    files: Mapping[Path, tuple[int, int, int]]

    @staticmethod
    def of(paths: Sequence[Path]) -> "Snapshot":
        """Look at the files; one that is away for a moment, as editors do, is left out."""
        found: dict[Path, tuple[int, int, int]] = {}
        for path in paths:
            try:
                seen = path.stat()
            except OSError:
                continue
            found[path] = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
        return Snapshot(found)


class VersionSeries:
    """Turns states of a file into versions 1, 2, … in a store of our own. Main thread only."""

    def __init__(self, path: Path, wishes: PublishOptions, settings: Settings) -> None:
        lifted = {name: LIMIT_ROWS[name].highest for name in _LIFTED}
        self.path = path
        self._wishes = replace(wishes, limits={**lifted, **wishes.limits})
        self._store = Store(settings.store)
        self._cache = settings.cache
        self._number = 0
        self._watched: list[Path] = [path]
        self._seen = Snapshot({})

    @property
    def changed(self) -> bool:
        """Whether the files differ from what was last published, or tried to."""
        now = Snapshot.of(self._watched)
        return now != self._seen and self.path in now.files

    @property
    def is_gone(self) -> bool:
        """Whether the file itself is not there; an editor that replaces it may be at it."""
        return not self.path.exists()

    def publish(self) -> Manifest:
        """Publish the files as they are, as the next version.

        Raises:
            BatchfleetError: they make no version; the text says why.
        """
        self._seen = Snapshot.of(self._watched)
        self._number += 1
        wishes = replace(self._wishes, version=str(self._number))
        draft, sources = draft_of_file(self.path, wishes)
        self._watched = list(sources.values())
        self._seen = Snapshot.of(self._watched)
        if draft.environment.startswith(LOCKED):
            assert wishes.requirements is not None
            cache = Path(self._cache) if self._cache else default_cache()
            build_locked(draft.environment, wishes.requirements, cache)
        return self._store.publish(draft, sources)


class Development:
    """Owns the fleet of one developer. All calls come from the main thread."""

    def __init__(
        self,
        local: LocalFleet,
        operator: Operator,
        series: VersionSeries,
        clock: Clock,
        report: Report,
    ) -> None:
        self._local = local
        self._operator = operator
        self._series = series
        self._clock = clock
        self._report = report
        self._serving: Manifest | None = None
        self._is_reported = False  # what became of the first version
        self._report_at_ms: float | None = None  # that the version in service serves
        self._candidate: Manifest | None = None
        self._gone_since_ms: float | None = None
        self._is_gone_reported = False
        self._leaving: list[Manifest] = []

    def begin(self) -> Manifest:
        """Publish the first version and put it in service.

        Raises:
            BatchfleetError: the file makes no version.
        """
        manifest = self._series.publish()
        tenants = [self._local.settings.tenant]
        deployment.deploy(self._operator, manifest.model, manifest.record(), tenants)
        self._serving = manifest
        return manifest

    def poll(self) -> None:
        """Check the programs, the files and the versions once, and report changes."""
        self._local.poll()
        if self._series.changed:
            self._follow()
        self._report_if_gone()
        self._check_first()
        self._check_candidate()
        if self._report_at_ms is not None and self._clock.monotonic_ms() >= self._report_at_ms:
            self._report_at_ms = None
            self._report_serving()
        self._leaving = [m for m in self._leaving if self._withdraw(m)]

    def _report_if_gone(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self._series.is_gone:
            self._gone_since_ms, self._is_gone_reported = None, False
        elif self._gone_since_ms is None:
            self._gone_since_ms = now_ms
        elif not self._is_gone_reported and now_ms >= self._gone_since_ms + _GONE_MS:
            self._is_gone_reported = True
            self._report(f"{self._series.path} is gone\nits last version keeps serving")

    def _follow(self) -> None:
        try:
            manifest = self._series.publish()
        except BatchfleetError as error:
            self._report(f"{error}\nthe previous version keeps serving")
            return
        if self._candidate is not None:
            self._leaving.append(self._candidate)
        self._candidate = manifest
        self._offer(manifest)

    def _offer(self, manifest: Manifest) -> None:
        deploy_hash = self._operator.deploy_hash(manifest.model)
        seen = deployment.require_deployment(manifest.model, deploy_hash)
        deployment.offer(self._operator, seen, manifest.record())

    def _check_first(self) -> None:
        if self._is_reported or self._serving is None:
            return
        state, reason = self._state_of(self._serving)
        self._is_reported = state in ("ready", "refused")
        if state == READY:
            self._report_serving()
        elif state == REFUSED:
            self._report(f"{reason}\nrequests wait until you fix the file")

    def _report_serving(self) -> None:
        if self._serving is not None:
            self._report(f"{self._serving.model}/{self._serving.version} is serving")

    def _check_candidate(self) -> None:
        candidate, serving = self._candidate, self._serving
        if candidate is None or serving is None:
            return
        state, reason = self._state_of(candidate)
        if state == READY:
            tenants = [self._local.settings.tenant]
            deployment.deploy(self._operator, candidate.model, candidate.record(), tenants)
            self._serving, self._candidate = candidate, None
            self._report_at_ms = self._clock.monotonic_ms() + _ROUTER_REFRESHES * REFRESH_MS
            self._leaving.append(serving)
        elif state == REFUSED:
            self._report(f"{reason}\n{serving.model}/{serving.version} keeps serving")
            self._candidate = None
            self._leaving.append(candidate)

    def _state_of(self, manifest: Manifest) -> tuple[str, str]:
        executor, keys = self._operator.executor, self._operator.keys(manifest.model)
        for worker in executor.run(membership.living(keys)):
            fields = executor.run(membership.announcement(keys, worker))
            said = WorkerAnnouncement.from_fields(fields)
            return said.state_of(manifest.version), said.reason_of(manifest.version)
        return "", ""

    def _withdraw(self, manifest: Manifest) -> bool:
        """Withdraw a version; whether it still has entries, so that this has to be repeated."""
        return deployment.withdraw(self._operator, manifest.model, manifest.version) > 0


class DevelopmentWorker:
    """The worker in a thread of this process, its device processes at this terminal."""

    def __init__(self, settings: Settings, process: ProcessContext, sources: Path) -> None:
        def open_link(python: Path | None) -> DeviceLink:
            command = device_command(settings, python, sources)
            return DeviceLink(command, environ=environ, at_terminal=True)

        environ = device_environment(process.environ, settings.device_environment)

        self._process = process
        self._grace_s = settings.grace_ms / 1000
        self._program = ConsumerProgram(
            settings,
            process.events,
            process.clock,
            devices=Devices(open_link=open_link, versions_apart=True, environ=environ),
        )
        self._failure: BaseException | None = None
        self._thread = guarded_thread("worker", self._run, self._fail)

    def start(self) -> None:
        """Start the worker."""
        self._thread.start()

    def _run(self) -> None:
        self._program.run(self._process.stop, lambda _: None)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._process.stop.set()

    def join(self) -> None:
        """Wait for the end of the worker, after the stop signal.

        Raises:
            BaseException: the error that ended it.
        """
        self._thread.join(self._grace_s + _JOIN_MARGIN_S)
        if self._failure is not None:
            raise self._failure
