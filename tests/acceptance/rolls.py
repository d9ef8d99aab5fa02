"""Rolls: versions that load beside others, take over step by step, and go back by themselves."""

from .measuring.promise import attempt
from .measuring.rolls.deploys import many_versions, plain_deploys

_PARTS = {
    "plain deploys": plain_deploys,
    "many versions in turn": many_versions,
}


def measure(*, quick):
    """All figures, the quickest first."""
    return [
        promise
        for title, part in _PARTS.items()
        for promise in attempt(title, lambda part=part: part(quick=quick))
    ]
