"""The copy of a deploy record that lies in the store, and how a fleet differs from it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from ..broker.fleet import known_epoch
from ..wire.deployment import Deployment
from ..wire.errors import SettingsError
from ..wire.names import is_name
from ..wire.reading import as_map, from_json, text_in

# Fields that hold JSON; all others are texts.
_JSON = ("version:", "kept:", "workers:", "draining:", "set:", "canary", "roll")
_OF_COPY = ("namespace", "tenants")
# They say which state of a record it is, not what it says.
_STAMP = ("epoch", "nonce")
_PAUSED, _ROLL_ENDS = "paused", ("completed", "rolled_back", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCopy:
    """What a store keeps of a deployed model.

    Attributes:
        model: which model.
        namespace: of the fleet where it was deployed.
        tenants: for whom.
        deploy_hash: the deploy record as it lay on the server.
    """

    model: str
    namespace: str
    tenants: Sequence[str]
    deploy_hash: Mapping[str, bytes]


class State(StrEnum):
    """How the record on the server is related to the copy."""

    LOST = "lost"  # there is none
    BEHIND = "behind"  # it is of an earlier epoch: the server has lost what came later
    SAME = "same"
    AHEAD = "ahead"  # it was changed after the copy was written


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What the server lacks of one model; `lines` say it field by field, for people."""

    copy: RecordCopy
    state: State
    lines: Sequence[str]

    @property
    def is_loss(self) -> bool:
        """Whether the copy knows what the server has lost."""
        return self.state in (State.LOST, State.BEHIND)

    def to_json(self) -> dict[str, Any]:
        """The map that `--json` prints."""
        return {"model": self.copy.model, "state": self.state, "lines": list(self.lines)}


def copy_of_record(
    deploy_hash: Mapping[str, bytes], namespace: str, tenants: Sequence[str]
) -> bytes:
    """The deploy record as JSON, for the copy on shared storage."""
    plain = {name: _decoded(name, value) for name, value in deploy_hash.items()}
    plain |= {"namespace": namespace, "tenants": list(tenants)}
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2)


def _decoded(name: str, raw: bytes) -> Any:
    """What a field says; a text where it is none of JSON, or a roll that a foreign hand wrote."""
    try:
        return from_json(name, raw) if name.startswith(_JSON) else raw.decode(errors="replace")
    except SettingsError:
        if name != "roll":
            raise
        return raw.decode(errors="replace")


def read_copy(model: str, raw: bytes) -> RecordCopy:
    """Read what `copy_of_record` wrote. A roll comes back paused: nobody has watched it since.

    Raises:
        SettingsError: it is no copy of a deploy record of this model.
    """
    what = "the copy of a deploy record"
    plain = as_map(what, from_json(what, raw))
    tenants = plain.get("tenants")
    if not isinstance(tenants, list) or not all(
        isinstance(one, str) and is_name(one) for one in tenants
    ):
        raise SettingsError(f"tenants of {what} are no names")
    deploy_hash = {
        name: orjson.dumps(value) if name.startswith(_JSON) else text_in(plain, name).encode()
        for name, value in plain.items()
        if name not in _OF_COPY
    }
    if "roll" in plain:
        deploy_hash["roll"] = orjson.dumps(_paused(plain["roll"]))
    if Deployment.from_hash(model, deploy_hash) is None:
        raise SettingsError(f"{what} names no stable version")
    return RecordCopy(
        model=model,
        namespace=text_in(plain, "namespace"),
        tenants=tenants,
        deploy_hash=deploy_hash,
    )


def _paused(roll: Any) -> Any:
    if not isinstance(roll, dict) or roll.get("phase") in _ROLL_ENDS:
        return roll
    return {**roll, "phase": _PAUSED, "reason": "restored from the store"}


def compare(copy: RecordCopy, deploy_hash: Mapping[str, bytes]) -> Difference:
    """How the record on the server differs from the copy."""
    lines = [] if not deploy_hash else list(_differences(copy.deploy_hash, deploy_hash))
    if "stable" not in deploy_hash:
        state = State.LOST
        lines = [f"{name}: {_in_words(copy.deploy_hash, name)}" for name in _said(copy.deploy_hash)]
    elif not lines:
        state = State.SAME
    else:
        is_behind = _epoch(deploy_hash) < _epoch(copy.deploy_hash)
        state = State.BEHIND if is_behind else State.AHEAD
    return Difference(copy=copy, state=state, lines=lines)


def _epoch(deploy_hash: Mapping[str, bytes]) -> int:
    """The epoch of what a record says; 0 where a foreign hand wrote it."""
    try:
        return known_epoch(deploy_hash)[0]
    except ValueError:
        return 0


def _said(deploy_hash: Mapping[str, bytes]) -> list[str]:
    return sorted(name for name in deploy_hash if name not in _STAMP)


def _differences(copied: Mapping[str, bytes], there: Mapping[str, bytes]) -> Iterator[str]:
    for name in sorted({*_said(copied), *_said(there)}):
        if not _says_the_same(name, copied.get(name), there.get(name)):
            yield f"{name}: {_in_words(there, name)} → {_in_words(copied, name)}"


def _says_the_same(name: str, one: bytes | None, other: bytes | None) -> bool:
    if one is None or other is None or not name.startswith(_JSON):
        return one == other
    with suppress(SettingsError):  # on the server, a foreign hand may have written it
        return bool(from_json(name, one) == from_json(name, other))
    return one == other


def _in_words(deploy_hash: Mapping[str, bytes], name: str) -> str:
    if name not in deploy_hash:
        return "nothing"
    if name.startswith(("version:", "kept:")):
        return "a record"
    return deploy_hash[name].decode(errors="replace")
