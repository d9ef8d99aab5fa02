"""Putting a version in service without a gap; `switching` says what comes next."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from ..wire.canary import WorkerChoice
from ..wire.deployment import Deployment, VersionRecord
from ..wire.errors import BatchfleetError, SettingsError
from .clearing import Cleared, Place, drain, forget_surplus
from .deployment import (
    CHANGED_TRIES,
    ChangedError,
    Deployed,
    OpenRequestsError,
    Operator,
    change,
    changed_error,
    deploy,
    offer,
    reconfigure,
    switch,
    undeploy,
)
from .handing_over import Move, fits_beside, next_move
from .switching import (
    Act,
    Intent,
    Phase,
    Voice,
    is_offered,
    leaving,
    next_act,
    phase_of,
    running_roll,
    voice_of,
    wanted_workers,
)
from .verdict import POLL_S, AllRefuseError, Verdict, Waiting, await_verdict, read_verdict

BESIDE, BY_WORKER = "beside", "worker-by-worker"
STRATEGIES = (BESIDE, BY_WORKER)


class NotReadyError(BatchfleetError):
    """Too few workers were ready for a version in time; it did not become the stable one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a version is to be put in service.

    Attributes:
        tenants: for whom, beside those for whom the model is deployed already.
        wait_ms: how long workers may take to load it; worker by worker, each of them.
        drain_ms: how long the versions that leave may take to answer what they have.
        min_ready: how many workers have to be ready; 0 = as `wanted_workers` says.
        keep: how many of the versions that were withdrawn are kept for going back.
        is_warm: the version that was stable stays loaded.
        is_now: it takes over before any worker is ready, and all others stay offered.
        strategy: one of `STRATEGIES`; empty = by what the workers say of their memory.
    """

    tenants: tuple[str, ...]
    wait_ms: float
    drain_ms: float
    min_ready: int = 0
    keep: int = 2
    is_warm: bool = False
    is_now: bool = False
    strategy: str = ""


class Takeover:
    """One command that puts a version in service. `run`, then `clear`."""

    def __init__(
        self, operator: Operator, model: str, record: VersionRecord, terms: Terms, waiting: Waiting
    ) -> None:
        nonce = operator.draw_nonce()
        self.verdict = Verdict()  # what the workers said last
        self.has_waited = True  # False: there was no worker to wait for
        self._operator = operator
        self._model = model
        self._record = replace(record, deployed=nonce)
        self._terms = terms
        self._place = Place(operator, model, waiting)
        self._before = operator.deploy_hash(model)
        before = Deployment.from_hash(model, self._before)
        stable = "" if before is None else before.stable
        self._intent = Intent(version=record.version, nonce=nonce, stable=stable)
        self._epoch = 0  # of the record that asks workers for the version
        self._late_at_ms = 0.0
        self._is_by_worker = False
        self._move = Move()
        self._leaving: list[str] = []

    @property
    def _name(self) -> str:
        return f"{self._model}/{self._intent.version}"

    def run(self) -> Deployed:
        """Put the version in service; whatever fails leaves the record as it was.

        Raises:
            AllRefuseError: the workers refuse it; the text holds their reasons.
            NotReadyError: too few were ready in time.
            ChangedError: somebody else has changed the record meanwhile.
            SettingsError: a roll is running, or the strategy needs more workers.
            ServerError: the server failed; run it again.
        """
        try:
            return self._run()
        except (KeyboardInterrupt, SettingsError):
            self._undo()
            raise

    def _run(self) -> Deployed:
        acts: Mapping[Act, Callable[[Deployment | None], Deployed | None]] = {
            Act.START: self._start,
            Act.LOOK_AGAIN: self._start,
            Act.OFFER: self._offer,
            Act.WAIT: self._wait,
            Act.SWITCH: self._switch,
            Act.FINISH: self._finish,
            Act.GIVE_UP: self._give_up,
        }
        for _ in range(CHANGED_TRIES):
            try:
                while True:
                    seen = self._look()
                    phase = phase_of(self._intent, seen)
                    act = next_act(phase, self._voice(phase, seen))
                    act = Act.START if self._terms.is_now else act
                    if act is Act.YIELD:
                        break
                    if done := acts[act](seen):
                        return done
            except ChangedError:  # by a router, or about something else: look what it is now
                continue
            break
        self._undo()
        raise changed_error(self._model, self._operator.deploy_hash(self._model))

    def _look(self) -> Deployment | None:
        seen = Deployment.from_hash(self._model, self._operator.deploy_hash(self._model))
        if seen is not None and (roll := running_roll(seen.roll)):
            raise SettingsError(
                f"a roll of {self._model} {roll}; end it first: `batchfleet roll promote "
                f"{self._model}`, or `rollback`"
            )
        return seen

    def _read(self) -> Verdict:
        self.verdict = read_verdict(
            self._operator,
            self._model,
            self._intent.version,
            epoch=self._epoch,
            stable=self._intent.stable,
        )
        return self.verdict

    def _voice(self, phase: Phase, seen: Deployment | None) -> Voice:
        verdict, min_ready = self._read(), self._terms.min_ready
        is_late = phase is Phase.OFFERED and self._now_ms() >= self._late_at_ms
        if not self._is_by_worker or phase is not Phase.OFFERED or seen is None:
            return voice_of(verdict, min_ready, is_late=is_late)
        self._move = next_move(seen, self._intent.version, verdict.said)
        if verdict.refused:
            return Voice.TOO_FEW
        if self._move.is_last:
            return Voice.ENOUGH
        return Voice.LATE if is_late else Voice.OPEN

    def _now_ms(self) -> float:
        return self._place.waiting.clock.monotonic_ms()

    def _pause(self, text: str) -> None:
        self._place.waiting.report(text)
        self._place.waiting.pause(POLL_S)

    # What is done, each from the record that was seen; a result ends it.

    def _start(self, seen: Deployment | None) -> Deployed | None:
        """Put it in service at once: nothing is, or this very version."""
        done = self._deploy(seen)

        def pause(seconds: float) -> None:
            self._place.waiting.report(f"{self._name} is loading")
            self._place.waiting.pause(seconds)

        clock = self._place.waiting.clock
        verdict = await_verdict(self._read, self._terms.wait_ms, clock, pause)
        if not verdict.all_refuse:
            return done
        refuse = f"all {verdict.workers} workers refuse it: {verdict.reasons}"
        if seen is None and not self._terms.is_now and self._take_back():
            raise AllRefuseError(f"{self._name} was not deployed: {refuse}")
        raise AllRefuseError(
            f"{self._name} is deployed, but {refuse}. Requests for it are answered no_worker. To "
            f"roll back, deploy another version: `batchfleet deploy {self._model}/VERSION`"
        )

    def _deploy(self, seen: Deployment | None) -> Deployed:
        stamp = None if seen is None else seen.stamp
        if seen is not None and not self._terms.is_now:
            self._leaving = leaving(seen, self._intent.version, is_warm=self._terms.is_warm)
        tenants = self._terms.tenants
        done = deploy(self._operator, self._model, self._record, tenants, stamp)
        self._intent = replace(self._intent, has_offered=True)
        self._epoch = self._epoch or done.epoch
        return done

    def _take_back(self) -> bool:
        """Undeploy the model that this command has deployed; whether that was possible."""
        seen = Deployment.from_hash(self._model, self._operator.deploy_hash(self._model))
        record = None if seen is None else seen.versions.get(self._intent.version)
        if seen is None or record is None or record.deployed != self._intent.nonce:
            return False
        try:
            undeploy(self._operator, self._model, only=seen.stamp)
        except (OpenRequestsError, ChangedError):
            return False
        return True

    def _offer(self, seen: Deployment | None) -> Deployed | None:
        assert seen is not None
        self._is_by_worker = self._choose_strategy(seen) == BY_WORKER
        choice = WorkerChoice(frozenset()) if self._is_by_worker else None
        self._epoch = offer(self._operator, seen, self._record, choice).epoch
        self._intent = replace(self._intent, has_offered=True)
        self._late_at_ms = self._now_ms() + self._terms.wait_ms
        return None

    def _choose_strategy(self, seen: Deployment) -> str:
        workers, wanted = self.verdict.workers, max(1, self._terms.min_ready)
        is_possible = workers - 1 >= wanted
        if self._terms.strategy == BY_WORKER and self._terms.is_warm:
            raise SettingsError("worker by worker, no version stays loaded: leave out --warm")
        if self._terms.strategy == BY_WORKER and not is_possible:
            raise SettingsError(
                f"worker by worker, one of the {workers} workers does not serve {self._model} "
                f"while it loads, and {wanted} must: start another one, or use --strategy {BESIDE}"
            )
        if self._terms.strategy or self._terms.is_warm or not is_possible:
            return self._terms.strategy or BESIDE
        return BESIDE if fits_beside(seen.stable, self.verdict.said) else BY_WORKER

    def _wait(self, seen: Deployment | None) -> Deployed | None:
        if self._is_by_worker and self._move.fields:
            assert seen is not None
            reconfigure(self._operator, seen, self._move.fields)
            self._late_at_ms = self._now_ms() + self._terms.wait_ms
            return None
        verdict = self.verdict
        wanted = verdict.workers if self._is_by_worker else self._wanted()
        self._pause(f"{self._name} is loading: {verdict.ready} of {wanted} workers are ready")
        return None

    def _wanted(self) -> int:
        return wanted_workers(self.verdict, self._terms.min_ready)

    def _switch(self, seen: Deployment | None) -> Deployed | None:
        self.has_waited = self._intent.has_offered
        if seen is None or not self._is_by_worker:
            return self._deploy(seen)
        self._leaving = leaving(seen, self._intent.version)
        return switch(self._operator, seen, self._intent.version)

    def _finish(self, seen: Deployment | None) -> Deployed | None:
        assert seen is not None
        return Deployed(model=self._model, version=self._intent.version, epoch=seen.epoch)

    def _give_up(self, seen: Deployment | None) -> Deployed | None:
        assert seen is not None
        verdict, is_by_worker = self.verdict, self._is_by_worker
        wanted = verdict.workers if is_by_worker else self._wanted()
        left = self._undo()
        rest = f"; {left} requests that name {self._name} are left for it" if left else ""
        keeps = f"{self._model}/{seen.stable} keeps serving{rest}"
        if verdict.refused and (is_by_worker or verdict.may_serve < wanted):
            raise AllRefuseError(
                f"{self._name} was not deployed: {len(verdict.refused)} of {verdict.workers} "
                f"workers refuse it: {verdict.reasons}. {keeps}"
            )
        raise NotReadyError(
            f"{self._name} was not deployed: after {self._terms.wait_ms / 1000:g} s, "
            f"{verdict.ready} of {wanted} workers are ready. {keeps}; --wait and --min-ready say "
            "how long and for how many to wait"
        )

    # Undoing.

    def _undo(self) -> int:
        """Have the record as it was, as far as this command has changed it; entries left over."""
        version, before = self._intent.version, self._before

        def fields(seen: Deployment) -> Mapping[str, bytes]:
            return undoing(before, seen, self._intent)

        change(self._operator, self._model, fields)
        seen = Deployment.from_hash(self._model, self._operator.deploy_hash(self._model))
        if seen is None or not is_offered(self._intent, seen):
            return 0  # never, not any more, or by somebody else
        left = drain(self._place, [version], keep=False, drain_ms=self._terms.drain_ms)
        kept = before.get(f"kept:{version}")
        if kept is not None and not left:
            change(
                self._operator,
                self._model,
                lambda now: {} if version in now.versions else {f"kept:{version}": kept},
            )
        return left.get(version, 0)

    # After it has taken over.

    def clear(self, waiting: Waiting) -> Cleared:
        """Withdraw the versions before once they have answered what they have, and keep some.

        Raises:
            ServerError: the server failed; run it again.
        """
        self._place = self._place._replace(waiting=waiting)
        drain_ms = self._terms.drain_ms if self.has_waited else 0.0
        left = drain(self._place, self._leaving, keep=True, drain_ms=drain_ms)
        if not left:
            self._open_to_all()
        forget_surplus(self._operator, self._model, self._terms.keep)
        withdrawn = [name for name in self._leaving if name not in left]
        return Cleared(withdrawn=withdrawn, left=left)

    def _open_to_all(self) -> None:
        """Let every worker load the stable version, once the one before is out of memory."""
        version, stable = self._intent.version, self._intent.stable
        give_up_ms = self._now_ms() + self._terms.drain_ms
        while self._is_by_worker and self._now_ms() < give_up_ms:
            if not any(one.state_of(stable) for one in self._read().said.values()):
                break
            self._pause(f"{self._model}/{stable} is being unloaded")
        while self._is_by_worker:
            seen = Deployment.from_hash(self._model, self._operator.deploy_hash(self._model))
            if seen is None or seen.stable != version:
                break
            with suppress(ChangedError):
                tenants = self._terms.tenants
                deploy(self._operator, self._model, self._record, tenants, seen.stamp)
                break


def undoing(before: Mapping[str, bytes], seen: Deployment, intent: Intent) -> dict[str, bytes]:
    """The fields that are to be again as they were, while the version is offered by this command.

    A version that was not offered before is not among them: it has to be withdrawn.
    """
    if not is_offered(intent, seen):
        return {}
    names = [f"version:{intent.version}", f"workers:{intent.version}"]
    fields = {name: before.get(name, b"") for name in names if names[0] in before}
    if seen.stable == intent.stable:
        name = f"workers:{intent.stable}"
        fields |= {name: before.get(name, b"")} if intent.stable in seen.workers else {}
        is_ours = seen.canary is not None and seen.canary.version == intent.version
        fields |= {"canary": b""} if is_ours else {}
    return fields
