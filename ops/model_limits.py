"""The limits of a deployed model: what its manifest says, what the operator says, what holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..wire.deployment import LIMIT_ROWS
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
