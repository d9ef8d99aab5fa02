"""Recovery: what peers do for workers that are gone. No lock and no leader; every worker does it.

Three steps, each safe to be done by all at once: bury whose beat stands still, take over what the
lost had taken, and forget the lost once nothing is pending for them.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from ...broker import fleet, membership, requests
from ...broker.commands import Command
from ...broker.errors import FencedError, StaleRecordError
from ...broker.interface import Executor
from ...broker.requests import Recovered
from ...service.steps import Steps, settled
from ...wire.deployment import Deployment, Stamp
from ...wire.errors import ServerError
from ...wire.keys import ModelKeys
from ...wire.liveness import LivenessWatch
from ...wire.work import parse_work
from ..batching.state import Lane, TakenEntry
from ..batching.stream_order import placement_of
from .blobs import hand_over
from .worker import Worker

# Looks at the beats that lie further apart than this count as an interruption.
_CONTACT_BEATS = 2.0
_LOOKS_A_BEAT = 4
_PEERS_FEW = 8


def round_of(beat_ms: float, peers: int) -> float:
    """How long to wait between two looks, with so many peers that look as well.

    The look decides how late a death is noticed beyond its lease. Where many look, each does so
    less often: any one of them is enough.
    """
    return beat_ms * min(1.0, max(1, peers / _PEERS_FEW) / _LOOKS_A_BEAT)


class Recovery:
    """Does the rounds for one worker, on the keeper's thread and connection."""

    def __init__(self, worker: Worker, executor: Executor) -> None:
        settings = worker.context.settings
        self._worker = worker
        self._executor = executor
        self._context = worker.context
        self._namespace = settings.namespace
        self._watch: LivenessWatch[tuple[ModelKeys, str]] = LivenessWatch(
            settings.lease_ms, _CONTACT_BEATS * settings.beat_ms
        )
        self._beat_ms = settings.beat_ms
        self._recover_ms = settings.recover_ms
        self._steps = Steps(worker.context.outage)
        self._next_ms = 0.0
        self._jitter = Random(worker.name)  # noqa: S311 - spreads peers, guards nothing

    def tick(self, deployments: Mapping[str, Deployment], lanes: Sequence[Lane]) -> None:
        """Do a round if one is due; rounds are jittered, so that peers do not move in step.

        A server that fails interrupts the watch: nothing seen before proves a death any more.

        Raises:
            ServerError: the server failed.
        """
        now_ms = self._worker.now_ms()
        if now_ms < self._next_ms:
            return
        try:
            peers, lost = self.look(list(deployments))
            for model, gone in lost.items():
                take_over = partial(self._recover_model, deployments[model], lanes, gone)
                if not self._steps.run("recover", model, take_over):
                    self._worker.note_lost_answer()  # what was claimed before the error is not held
        except FencedError:
            peers = 0
            self._watch.interrupt()  # the heartbeat finds out what it means
        except ServerError:
            self._watch.interrupt()
            self._worker.note_lost_answer()
            raise
        round_ms = min(self._recover_ms, round_of(self._beat_ms, peers))
        self._next_ms = now_ms + round_ms * self._jitter.uniform(0.8, 1.0)

    def look(self, models: Sequence[str]) -> tuple[int, dict[str, list[str]]]:
        """Look at all beat counters once, and bury those that have stood still for a lease.

        Returns how many peers there are, and who is lost of which model.

        Raises:
            ServerError: the server failed.
        """
        if not self._worker.is_fresh():
            # Where our own beat does not get through (a full disk, no replicas), no peer's may.
            self._watch.interrupt()
            return 0, {}
        keys = [ModelKeys(self._namespace, model) for model in models]
        commands: list[Command[Any]] = [fleet.server_info()]
        for key in keys:
            commands += (membership.beat_counters(key), membership.lost(key))
        info, *answers = self._executor.run_each(commands)
        if isinstance(info, ServerError):
            raise info
        counters: dict[tuple[ModelKeys, str], float] = {}
        gone: dict[str, list[str]] = {}
        for key, pair in zip(keys, zip(answers[::2], answers[1::2], strict=True), strict=True):
            beats, lost = self._steps.run("look", key.model, partial(settled, pair)) or ({}, [])
            counters |= {(key, name): at for name, at in beats.items() if name != self._worker.name}
            gone |= {key.model: lost} if lost else {}
        dead = self._watch.look(counters, self._worker.now_ms(), info.run_id)
        for (key, worker), counter in dead.items():
            self._context.faults.reach("worker.before_bury")
            bury = partial(self._executor.run, membership.bury(key, worker, counter))
            if self._steps.run("bury", key.model, bury):
                gone.setdefault(key.model, []).append(worker)
                self._context.events.emit("worker.buried", worker=worker, model=key.model)
        return len({worker for _, worker in counters}), gone

    def _recover_model(
        self, deployment: Deployment, lanes: Sequence[Lane], lost: Sequence[str]
    ) -> bool:
        """Do a round for one model; True."""
        try:
            self._take_over_model(deployment, lanes, lost)
        except StaleRecordError:
            self._worker.reread(deployment.model, deployment.stamp)
        return True

    def _take_over_model(
        self, deployment: Deployment, lanes: Sequence[Lane], lost: Sequence[str]
    ) -> None:
        """Take over what lost workers of a model had taken, as far as there is room."""
        keys = ModelKeys(self._namespace, deployment.model)
        streams = [
            stream
            for record in deployment.versions.values()
            for stream in fleet.queue_streams(keys, record)
        ]
        for gone in lost:
            for lane in lanes:
                if lane.model == deployment.model:
                    self._take_over_lane(keys, deployment.stamp, lane, gone)
            self._context.faults.reach("worker.before_retire")
            if self._executor.run(membership.retire(keys, gone, streams)):
                self._context.events.emit("worker.forgotten", worker=gone, model=keys.model)

    def _take_over_lane(self, keys: ModelKeys, stamp: Stamp, lane: Lane, gone: str) -> None:
        for stream in fleet.queue_streams(keys, lane.record):
            offered = self._worker.offer_for_lost(lane)
            if offered is None:
                return
            command = requests.recover(keys, self._worker.name, stamp, gone, stream, offered.room)
            entries = [
                entry
                for found in self._executor.run(command)
                if (entry := self._read(stream, found)) is not None
            ]
            if entries:
                self._context.faults.reach("worker.after_recover")
                hand_over(self._executor, keys, offered, entries, offered.unit.take_over)
                self._context.events.emit(
                    "worker.took_over", worker=gone, model=keys.model, count=len(entries)
                )

    def _read(self, stream: str, found: Recovered) -> TakenEntry | None:
        try:
            entry = parse_work(stream, found.entry_id, found.fields)
        except ValueError as error:
            self._worker.report_unreadable(f"{stream} {found.entry_id.decode()}: {error}")
            self._executor.run_all(requests.drop_work(stream, [found.entry_id]))
            return None
        return TakenEntry(placement_of(stream), entry, found.attempt, found.inside)
