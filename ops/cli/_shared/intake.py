"""Changing whether a model takes requests, and telling who follows."""

from dataclasses import asdict

from ...deployment import set_intake
from .connecting import changing
from .following import follow, programs_json, report_following
from .options import Loaded
from .output import print_json, say


def change_intake(
    loaded: Loaded, model: str, intake: str, sentence: str, *, wait_s: float, as_json: bool
) -> None:
    """Set it, wait until the programs follow, and print `sentence`."""
    with changing(loaded.settings) as operator:
        done = set_intake(operator, model, intake)
        found = follow(operator, model, wait_s)
    if as_json:
        print_json(asdict(done) | programs_json(found))
    else:
        say(f"{sentence} (epoch {done.epoch})")
    report_following(found, wait_s)
