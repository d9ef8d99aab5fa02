"""Nothing lost: what becomes of requests when workers, servers, callers or memory give way."""

from .measuring.fault_matrix import fault_matrix
from .measuring.full_memory import full_memory
from .measuring.held_lock import held_interpreter_lock
from .measuring.leavers import leavers
from .measuring.leftovers import leftovers
from .measuring.lost_workers import frozen_workers, killed_workers
from .measuring.outages import frozen_server, outages
from .measuring.promise import attempt
from .measuring.short_deadlines import short_deadlines

_PARTS = {
    "deadlines while all are busy": short_deadlines,
    "callers that give up": leavers,
    "a model that holds the interpreter lock": held_interpreter_lock,
    "a server that stands still": frozen_server,
    "frozen workers": frozen_workers,
    "a server without memory": full_memory,
    "what requests leave behind": leftovers,
    "a server that goes away": outages,
    "killed workers": killed_workers,
    "the fault matrix": fault_matrix,
}


def measure(*, quick):
    """All figures, the quickest first."""
    return [
        promise
        for title, part in _PARTS.items()
        for promise in attempt(title, lambda part=part: part(quick=quick))
    ]
