"""A promised figure and what was measured: the rows of every acceptance table."""

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One promise. `figure` is None where it could not be measured; such a promise never holds."""

    promise: str
    bound: str
    figure: float | str | None
    holds: bool

    def to_json(self):
        return asdict(self)

    @property
    def shown(self):
        if self.figure is None:
            return "not measured"
        return f"{self.figure:.4g}" if isinstance(self.figure, float) else str(self.figure)


def at_least(promise, figure, bound):
    return Promise(promise=promise, bound=f"≥ {bound:g}", figure=figure, holds=figure >= bound)


def at_most(promise, figure, bound):
    return Promise(promise=promise, bound=f"≤ {bound:g}", figure=figure, holds=figure <= bound)


def equals(promise, figure, bound):
    return Promise(promise=promise, bound=f"= {bound}", figure=figure, holds=figure == bound)


def skipped(promise, reason):
    return Promise(promise=promise, bound=reason, figure=None, holds=False)


def attempt(title: str, measure: Callable[[], list[Promise]]) -> list[Promise]:
    """The promises that `measure` returns; where it fails, one that says so.

    A part that breaks must not hide the figures of the others.
    """
    click.echo(f"measuring: {title}", err=True)
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - shown in full, and the run fails by it
        traceback.print_exc()
        return [skipped(title, f"{type(error).__name__}: {error}"[:200])]
