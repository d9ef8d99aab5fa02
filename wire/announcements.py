"""What routers and workers announce of themselves: by which deploy record of a model they act."""

from collections.abc import Mapping

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


def read_lanes(raw: bytes) -> dict[str, dict[str, str]]:
    """What a worker announces of each version: its state, and the reason where it has one.

    Ill-formed data, which no worker writes, counts as none.
    """
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


def worker_announcement(stamp: Stamp) -> dict[str, str]:
    """The fields of a worker's hash that say by which record of the model it acts."""
    return {"epoch": str(stamp.epoch), "nonce": stamp.nonce}


def read_worker_announcement(fields: Mapping[str, bytes]) -> Stamp | None:
    """By which record of the model a worker acts; None where it says nothing of it."""
    if "epoch" not in fields:
        return None
    return Stamp.from_wire(fields["epoch"], fields.get("nonce"))
