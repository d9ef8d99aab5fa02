"""As fast as the machine: the best engine of its CPU, and batches by their measured cost."""

import click

from benchmarks.quiet import wait_until_quiet

from . import demo
from .measuring.cold_start import cold_start
from .measuring.encoder_speed import encoder_speed
from .measuring.mixed_lengths import mixed_lengths
from .measuring.pictures import pictures
from .measuring.promise import attempt
from .measuring.stub_load import four_workers, stub_beside_ideal

_PARTS = {
    "pictures": pictures,
    "a stub device beside its ideal": stub_beside_ideal,
    "one worker and four": four_workers,
    "cold starts": cold_start,
    "short texts among long ones": mixed_lengths,
    "the encoder": encoder_speed,
    "the demo": demo.demo,
}


def measure(*, quick):
    """All figures, the quickest first."""
    if not quick:
        click.echo(wait_until_quiet(), err=True)
    return [
        promise
        for title, part in _PARTS.items()
        for promise in attempt(title, lambda part=part: part(quick=quick))
    ]
