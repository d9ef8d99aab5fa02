"""Waiting until the programs of a fleet follow a change, and reporting those that do not."""

from collections.abc import Collection
from dataclasses import asdict
from functools import partial
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ....service.clock import SystemClock
from ....service.lifecycle import StopSignal
from ....wire.texts import terminal_text
from ...deployment import Deployed, Operator
from ...following import ROUTER, Following, await_following, read_following
from ...survey import forget_routers
from .options import seconds
from .output import print_json, say

_WAIT_S = 10.0

wait_option = click.option(
    "--wait",
    "wait_s",
    type=seconds(0, 3600),
    default=_WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until all routers and workers follow the change; 0 = do not wait.",
)


def follow(
    operator: Operator, model: str, wait_s: float, workers: Collection[str] = ()
) -> Following:
    """Wait until all live programs act by the record in force, with progress on a terminal."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    read = partial(read_following, operator, model, workers)
    pause = StopSignal().wait
    if not console.is_terminal:
        found = await_following(read, wait_s * 1000, SystemClock(), pause, bool)
    else:
        with console.status(
            Text(f"waiting for routers and workers of {terminal_text(model)}")
        ) as status:
            found = await_following(
                read, wait_s * 1000, SystemClock(), pause, lambda now: status.update(_progress(now))
            )
    silent = [one.name for one in found.programs if one.kind == ROUTER and one.is_silent]
    forget_routers(operator.executor, operator.namespace, silent)
    return found


def _progress(found: Following) -> Text:
    alive = len(found.programs) - len(found.silent)
    names = ", ".join(found.behind)
    return Text(terminal_text(f"waiting for {len(found.behind)} of {alive} programs: {names}"))


def programs_json(found: Following) -> dict[str, Any]:
    """The part of a command's JSON that says which programs follow."""
    return {"programs": [one.to_json() for one in found.programs], "followed": not found.behind}


def print_change(done: Deployed, sentence: str, found: Following, *, as_json: bool) -> None:
    """Print what has changed, and in JSON which programs follow."""
    if as_json:
        print_json(asdict(done) | programs_json(found))
    else:
        say(f"{sentence} (epoch {done.epoch})")


def report_following(found: Following, wait_s: float) -> None:
    """Report programs that were not waited for or did not follow; a command calls it last.

    Raises:
        NotFollowedError: somebody who is alive has not followed.
    """
    if found.silent:
        say(
            f"not waited for, without a heartbeat: {', '.join(found.silent)}; the server rejects "
            "what they do under an older deploy record",
            err=True,
        )
    if found.stamp is not None and not found.has_router:
        say("no router is running; requests wait until one starts", err=True)
    if wait_s:
        found.require_followed(wait_s)
