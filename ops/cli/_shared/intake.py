"""Changing whether a model takes requests, and waiting until the programs follow."""

from ...deployment import set_intake
from .connecting import changing
from .following import follow, print_change, report_following
from .options import Loaded


def change_intake(
    loaded: Loaded, model: str, intake: str, sentence: str, *, wait_s: float, as_json: bool
) -> None:
    """Set it, wait until the programs follow, and print `sentence`."""
    with changing(loaded.settings) as operator:
        done = set_intake(operator, model, intake)
        found = follow(operator, model, wait_s)
    print_change(done, sentence, found, as_json=as_json)
    report_following(found, wait_s)
