"""The limits of a deployed model: what its manifest says, what the operator says, what holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..wire.deployment import AUTO, AUTO_ROWS, LIMIT_ROWS, Limits, check_limit
from ..wire.errors import SettingsError
from ..wire.names import shown
from ..wire.numbers import number_in
from .deployment import overrides_in, require_deployment, without_overrides

_OTHER_MEANINGS = {
    "truncate": "rows over max_length: 'end' cuts them, 'refuse' answers too_long",
    "input_prefixes": "allowed URL prefixes for inputs_at; each ends with a slash",
    "buckets": "upper edges of the length ranges (buckets), in tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitInForce:
    """One limit. `override` is None where the operator set none."""

    name: str
    meaning: str
    manifest: Any
    override: Any
    in_force: Any

    def to_json(self) -> dict[str, Any]:
        """The map that `settings --model M --json` prints."""
        return {
            "meaning": self.meaning,
            "manifest": self.manifest,
            "override": self.override,
            "in_force": self.in_force,
        }


def limits_in_force(model: str, deploy_hash: Mapping[str, bytes]) -> list[LimitInForce]:
    """All limits of the stable version, in the order of their table.

    Raises:
        CallerError: `unknown_model` where the hash is empty.
    """
    deployment = require_deployment(model, deploy_hash)
    own = require_deployment(model, without_overrides(deploy_hash))
    manifest = own.versions[own.stable].limits.to_wire()
    in_force = deployment.versions[deployment.stable].limits.to_wire()
    overrides = overrides_in(deploy_hash)
    return [
        LimitInForce(
            name=name,
            meaning=LIMIT_ROWS[name].meaning if name in LIMIT_ROWS else _OTHER_MEANINGS[name],
            manifest=manifest[name],
            override=overrides.get(name),
            in_force=in_force[name],
        )
        for name in in_force
    ]


def what_keeps_batches_small(limits: Limits, length: int) -> str:
    """A warning where `max_batch_tokens` ends batches of such rows early; empty where it does not.

    A number in the manifest is meant for one machine; workers elsewhere are bound by it as well.
    """
    tokens, size = limits.max_batch_tokens, limits.max_batch_size or AUTO_ROWS
    rows = max(1, tokens // max(1, length))
    if not tokens or rows >= size:
        return ""
    return (
        f"max_batch_tokens={tokens} lets {rows} of {size} rows of length {length} into a batch; "
        f"with {AUTO!r} workers decide by what batches cost them"
    )


_LIMIT_NAMES = frozenset(item.name for item in fields(Limits))


def parse_overrides(assignments: Sequence[str]) -> dict[str, Any]:
    """Read `key=value` as typed; `key=` gives None, which takes the override back.

    Raises:
        SettingsError: not an assignment, no such limit, or a value out of its range.
    """
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or name in changes:
            raise SettingsError(f"{shown(assignment)} must be one key=value for each key")
        changes[name] = _parse_limit(name, text)
    return changes


def _parse_limit(name: str, text: str) -> Any:
    if text or name not in _LIMIT_NAMES:
        return check_limit(name, _parse_value(name, text))
    return None


def _parse_value(name: str, text: str) -> Any:
    if name == "buckets":
        return [_parse_number(part) for part in text.split(",")]
    if name == "input_prefixes":
        return text.split(",")
    return _parse_number(text)


def _parse_number(text: str) -> Any:
    """A number where `text` spells one, else the text: what fits is for `check_limit` to say."""
    number = number_in(text)
    return text if number is None else number
