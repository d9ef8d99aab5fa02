"""The lanes of a worker: one per version that it serves, as the deploy records say."""

from collections.abc import Mapping

from ...wire.announcements import DRAINING, LOADING, READY, REFUSED
from ...wire.deployment import Deployment, VersionRecord
from ..batching.loss_history import has_other_manifest, is_redeployed
from ..batching.state import Lane
from .interpreters import Interpreters
from .lane_news import engine_in_words
from .worker import Worker


class Lanes:
    """Opens, moves and drops lanes. Owned by the keeper's thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._context = worker.context
        self._interpreters = Interpreters(self._context.settings, self._context.devices.environ)
        self._lanes: dict[tuple[str, str], Lane] = {}  # by model and version

    def all(self) -> list[Lane]:
        """All lanes, refused ones too."""
        return list(self._lanes.values())

    def of(self, model: str) -> list[Lane]:
        """The lanes of one model."""
        return [lane for lane in self._lanes.values() if lane.model == model]

    def states(self) -> dict[tuple[str, str], dict[str, str]]:
        """What operators and peers are shown of each lane, by model and version."""
        return {pair: lane_state(lane) for pair, lane in self._lanes.items()}

    def match(self, deployments: Mapping[str, Deployment]) -> None:
        """Have a lane for every version that this worker is to load, and no others."""
        wanted = {
            (model, version): record
            for model, deployment in deployments.items()
            for version, record in deployment.versions.items()
            if deployment.loads(version, self._worker.name)
        }
        for pair in [pair for pair in self._lanes if pair not in wanted]:
            self._leave(pair, is_deployed=pair[0] in deployments)
        for pair, record in wanted.items():
            self._match_one(pair, record)

    def _leave(self, pair: tuple[str, str], *, is_deployed: bool) -> None:
        """Drop a lane once what it holds is answered, at once where nothing can be.

        A model that is not deployed has no requests.
        """
        lane = self._lanes[pair]
        if is_deployed and not lane.refusal and (lane.was_ready or lane.held_rows):
            if not lane.is_draining:
                self._worker.drain_lane(lane)
        else:
            self._worker.drop_lane(self._lanes.pop(pair))

    def _match_one(self, pair: tuple[str, str], record: VersionRecord) -> None:
        lane = self._lanes.get(pair)
        if lane is None:
            self._lanes[pair] = self._open(pair[0], record)
            return
        if lane.is_draining:
            self._worker.resume_lane(lane)
        if has_other_manifest(lane.record, record) or (
            lane.refusal and is_redeployed(lane.record, record)
        ):
            # This very version was deployed again: what made it refuse may be repaired.
            self._worker.drop_lane(lane)
            self._lanes[pair] = self._open(pair[0], record)
        elif lane.record != record:
            self._worker.adjust_lane(lane, record)

    def _open(self, model: str, record: VersionRecord) -> Lane:
        """A lane that is being loaded, or one that is refused without a look at the version."""
        refusal = _device_misfit(record, self._context.settings.device)
        refusal = refusal or self._context.losses.refusal_of(f"{model}/{record.version}", record)
        if not refusal:
            python, refusal = self._interpreters.find(model, record)
            if not refusal:
                return self._worker.open_lane(model, record, python)
        self._context.events.emit(
            "lane.refused", model=model, version=record.version, reason=refusal
        )
        return Lane(0, model, record, refusal=refusal)

    def move(self) -> None:
        """Move lanes that are to have a device process of their own, and drop what has drained.

        Refused ones need no process.
        """
        for pair, lane in list(self._lanes.items()):
            if lane.is_draining and self._worker.is_drained(lane):
                self._worker.drop_lane(self._lanes.pop(pair))
            elif lane.refusal:
                self._worker.drop_lane(lane)
            elif lane.is_moving:
                self._lanes[pair] = self._worker.move_lane(lane)

    def drop_stranded(self) -> bool:
        """Drop lanes that have requests and cannot be loaded here any more; whether there were any.

        Requests that are held, or pending since the lane before was dropped. An entry changes hands
        only where its owner leaves: the worker has to start over as another.
        """
        orphaned, found = self._worker.orphaned, False
        for pair, lane in self._lanes.items():
            if lane.ready:
                orphaned.discard(pair)  # intake looks at what is pending
            elif lane.refusal and (lane.held_rows or pair in orphaned):
                self._worker.drop_lane(lane)
                found = True
                self._context.events.emit("lane.stranded", model=pair[0], version=pair[1])
        return found


def lane_state(lane: Lane) -> dict[str, str]:
    """What a worker announces of a lane."""
    if lane.refusal:
        return {"state": REFUSED, "reason": lane.refusal}
    if lane.is_draining:
        return {"state": DRAINING}
    if not lane.ready:
        return {"state": LOADING}
    origin = "limit" if lane.record.limits.max_batch_size else "measured"
    rows = {"rows": str(lane.limits.max_batch_size), "rows_from": origin}
    memory = {"memory_bytes": str(lane.memory_bytes)}
    return {"state": READY, **rows, **memory, **engine_in_words(lane.engine)}


def _device_misfit(record: VersionRecord, device: str) -> str:
    """Why a version cannot run on a device; empty where it can."""
    kind = device.partition(":")[0]
    if record.device in ("any", kind):
        return ""
    return f"it needs {record.device}, this worker has {device}"
