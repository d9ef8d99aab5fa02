"""Nobody in where they don't belong: what attackers tried, the threats, and secrets that stay."""

from tests.support.reported import ATTACKERS, SECURITY

from .measuring.costly_requests import costly_requests
from .measuring.kept_secrets import kept_secrets
from .measuring.promise import attempt
from .measuring.reported_rows import reported_rows


def measure(*, quick):
    """Every row by its tests, a neighbour's p99 beside what costs, a search for passwords."""
    return [
        *attempt("what attackers tried", lambda: reported_rows(ATTACKERS, r"X\d+", quick=quick)),
        *attempt("threats", lambda: reported_rows(SECURITY, r"T\d+", quick=quick)),
        *attempt("requests that cost", lambda: costly_requests(quick=quick)),
        *attempt("secrets that stay", lambda: kept_secrets(quick=quick)),
    ]
