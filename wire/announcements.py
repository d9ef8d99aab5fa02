"""What routers and workers announce of themselves, and by which deploy record they act."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from .codec import shallow_json
from .deployment import Stamp


def router_announcement(stamps: Mapping[str, Stamp]) -> bytes:
    """What a router announces: model → epoch and nonce of the record by which it acts."""
    models = {name: tuple(stamp) for name, stamp in stamps.items()}
    return orjson.dumps({"models": models}, option=orjson.OPT_SORT_KEYS)


def read_router_announcement(raw: bytes) -> dict[str, Stamp]:
    """Which records a router follows. Ill-formed data, which no router writes, counts as none."""
    try:
        models = shallow_json(raw)["models"]
        pairs = [(str(name), (epoch, nonce)) for name, (epoch, nonce) in models.items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return {
        name: Stamp(epoch, nonce)
        for name, (epoch, nonce) in pairs
        if isinstance(epoch, int) and isinstance(nonce, str)
    }


LOADING, READY, DRAINING, REFUSED = "loading", "ready", "draining", "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAnnouncement:
    """What a worker's hash says of it to those who serve one model.

    Attributes:
        versions: version → its `state`, the `reason` where it has one, and of a version whose model
            has engines the `engine` in use, its `precision`, `gain` and `difference`.
        stamp: the record of the model by which it acts; None where it says nothing of it.
        stalled: its loops that stand still, as text; empty where all go on.
        facts: what it says besides for operators, as text.
    """

    versions: Mapping[str, Mapping[str, str]]
    stamp: Stamp | None = None
    stalled: str = ""
    facts: Mapping[str, str]

    def state_of(self, version: str) -> str:
        """What it says of a version; empty where it says nothing."""
        return self.versions.get(version, {}).get("state", "")

    def reason_of(self, version: str) -> str:
        """Why it refuses a version; empty where it does not."""
        return self.versions.get(version, {}).get("reason", "")

    def to_fields(self) -> dict[str, str]:
        """The fields of the hash."""
        fields = {"lanes": orjson.dumps(self.versions).decode(), "stalled": self.stalled}
        if self.stamp is not None:
            fields |= {"epoch": str(self.stamp.epoch), "nonce": self.stamp.nonce}
        return {**fields, **self.facts}

    @classmethod
    def from_fields(cls, fields: Mapping[str, bytes]) -> "WorkerAnnouncement":
        """Read the hash. Ill-formed fields were written by somebody else and are ignored."""
        epoch, nonce = fields.get("epoch"), fields.get("nonce")
        return cls(
            versions=_read_lanes(fields.get("lanes", b"{}")),
            stamp=None if epoch is None else Stamp.from_wire(epoch, nonce),
            stalled=fields.get("stalled", b"").decode(errors="replace"),
            facts={
                field: value.decode(errors="replace")
                for field, value in sorted(fields.items())
                if field not in ("lanes", "stalled", "nonce")
            },
        )


def _read_lanes(raw: bytes) -> dict[str, dict[str, str]]:
    try:
        lanes = shallow_json(raw)
    except ValueError:
        return {}
    if not isinstance(lanes, dict):
        return {}
    return {
        version: {name: value for name, value in lane.items() if isinstance(value, str)}
        for version, lane in lanes.items()
        if isinstance(lane, dict)
    }
