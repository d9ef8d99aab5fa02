"""`batchfleet deploy restore`."""

import sys

import click

from ...models.store import Store
from ...wire.errors import SettingsError
from ..record_copy import Difference, State
from ..restoring import differences, restore
from ._shared.connecting import changing
from ._shared.finding import warn_left_out
from ._shared.options import LOGS, Loaded, examples, json_option, with_settings
from ._shared.output import print_json, say

_MEANINGS = {
    State.LOST: "the server has lost it",
    State.BEHIND: "the server has lost its last changes",
    State.SAME: "as in the store",
    State.AHEAD: "changed since the copy was written; it is left as it is",
}


@click.command("restore", short_help="Bring back what the server has lost.")
@click.argument("models", metavar="[MODEL]…", nargs=-1)
@click.option("--yes", is_flag=True, help="Restore without asking.")
@with_settings("redis_url", "namespace", "store", *LOGS)
@json_option
@examples(
    "batchfleet deploy restore",
    "batchfleet deploy restore minilm --yes",
)
def restore_lost(loaded: Loaded, *, models: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Bring deployed models back that the server has lost.

    The store has a copy of each deploy record (MODEL/deploy.json). This command shows how the
    server differs from the copies, asks, and restores what is missing: versions, limits, tenants
    and streams. What was changed on the server since a copy was written stays as it is. A roll
    comes back paused. Requests and replies cannot be brought back.

    With --json, nothing is asked: without --yes, nothing is restored either.
    """
    store = Store(loaded.settings.store)
    with changing(loaded.settings) as operator:
        found, left_out = differences(operator, store, models)
        lost = [one for one in found if one.is_loss]
        warn_left_out(left_out)
        if not as_json:
            _show(found)
        is_agreed = yes or (not as_json and bool(lost) and _agreed())
        restored = [one.copy.model for one in lost if is_agreed and restore(operator, one)]
    if as_json:
        print_json({"models": [one.to_json() for one in found], "restored": restored})
        return
    for one in lost if is_agreed else ():
        if one.copy.model in restored:
            say(f"{one.copy.model} is restored")
        else:
            say(f"{one.copy.model} was undeployed within the last hour; deploy it again", err=True)


def _show(found: list[Difference]) -> None:
    if not found:
        say("the store has no copy of a deploy record of this fleet")
    for one in found:
        say(f"{one.copy.model}: {_MEANINGS[one.state]}")
        say(*(f"    {line}" for line in one.lines)) if one.lines else None
    if found and not any(one.is_loss for one in found):
        say("nothing is lost")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise SettingsError("nobody can be asked here; --yes restores without asking")
    return click.confirm("Restore what is lost?")
