"""What strangers ran into: user code, odd values, machines, stores, and a fleet that must heal."""

from tests.support.reported import STRANGERS

from .measuring.hostile import hostile_models
from .measuring.promise import attempt
from .measuring.reported_rows import reported_rows


def measure(*, quick):
    """Every row of what was reported, and healthy models beside hostile ones."""
    return [
        *attempt(
            "rows that were reported", lambda: reported_rows(STRANGERS, "[BCFM][0-9]+", quick=quick)
        ),
        *attempt("hostile models", lambda: hostile_models(quick=quick)),
    ]
