"""Rolls: versions that load beside others, take over step by step, and go back by themselves."""

from .measuring.promise import attempt
from .measuring.rolls.bad_versions import bad_versions
from .measuring.rolls.chance import random_sequence
from .measuring.rolls.deploys import many_versions, plain_deploys
from .measuring.rolls.identical import identical_versions
from .measuring.rolls.interruptions import killed_jobs_workers, restarted_server, two_operators
from .measuring.rolls.kinds import conflicting_packages, only_code_differs
from .measuring.rolls.shifting import rolls_under_load, weight_of_a_step
from .measuring.rolls.switches import many_switches

_PARTS = {
    "two operators": two_operators,
    "the weight of a step": weight_of_a_step,
    "only the code differs": only_code_differs,
    "packages that conflict": conflicting_packages,
    "plain deploys": plain_deploys,
    "many versions in turn": many_versions,
    "a server that restarts": restarted_server,
    "killed jobs workers": killed_jobs_workers,
    "bad versions": bad_versions,
    "versions that are the same": identical_versions,
    "a random sequence": random_sequence,
    "many switches": many_switches,
    "rolls under load": rolls_under_load,
}


def measure(*, quick):
    """All figures, the quickest first."""
    return [
        promise
        for title, part in _PARTS.items()
        for promise in attempt(title, lambda part=part: part(quick=quick))
    ]
