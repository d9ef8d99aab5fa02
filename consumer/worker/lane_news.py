"""Reports lanes that were loaded and that were refused, each once."""

from collections.abc import Sequence

from ...service.events import Events
from ..batching.state import Lane
from ..link.protocol import EngineInUse, Message, Ready


def engine_in_words(engine: EngineInUse | None) -> dict[str, str]:
    """What operators are told of the engine that runs a version; nothing where it has no choice."""
    if engine is None:
        return {}
    return {
        "engine": engine.name,
        "precision": engine.precision,
        "gain": f"{engine.gain:.2f}",
        "difference": f"{engine.difference:.1e}",
    }


_NAMES_MAX = 3


def in_words(names: Sequence[str]) -> str:
    """A few of these names, and how many more there are; empty where there are none."""
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


_NO_CHOICE = EngineInUse("", "", 1.0, 0.0, 1.0)


class LaneNews:
    """What one pass of a device thread has to report. Gathered under the worker's lock.

    Refusals count wherever they came from: the device process, its loss, or its failure to start.
    """

    def __init__(self, lanes: dict[int, Lane], messages: Sequence[Message] = ()) -> None:
        words = [message for message in messages if isinstance(message, Ready)]
        self.ready = [(lanes[word.lane], word.load_ms) for word in words if word.lane in lanes]
        self.refused = [lane for lane in lanes.values() if lane.refusal and not lane.is_reported]
        for lane in self.refused:
            lane.is_reported = True

    def report(self, events: Events) -> None:
        """Emit the events."""
        for lane, load_ms in self.ready:
            fields = {"model": lane.model, "version": lane.version}
            words = engine_in_words(lane.engine or _NO_CHOICE)
            events.emit("lane.ready", **fields, load_ms=round(load_ms), **words)
        for lane in self.refused:
            fields = {"model": lane.model, "version": lane.version}
            events.emit("lane.refused", **fields, reason=lane.refusal)
