"""Waiting until the programs of a fleet follow a change, and reporting those that do not."""

from collections.abc import Callable, Collection
from dataclasses import asdict
from functools import partial
from typing import Any

import click

from ...deployment import Deployed, Operator
from ...following import ROUTER, Following, await_following, read_following
from ...survey import forget_routers
from .options import seconds
from .output import print_json, say
from .waiting import progress_line

FOLLOW_S = 10.0
_DRAIN_S = 60.0

wait_option = click.option(
    "--wait",
    "wait_s",
    type=seconds(0, 3600),
    default=FOLLOW_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait until all routers and workers follow the change; 0 = do not wait.",
)


def drain_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--drain`, with what it says of itself."""
    return click.option(
        "--drain",
        "drain_s",
        type=seconds(0, 86_400),
        default=_DRAIN_S,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


def follow(
    operator: Operator, model: str, wait_s: float, workers: Collection[str] = ()
) -> Following:
    """Wait until all live programs act by the record in force, with progress on a terminal."""
    read = partial(read_following, operator, model, workers)
    with progress_line(f"waiting for routers and workers of {model}") as waiting:
        report = lambda now: waiting.report(_progress(now))  # noqa: E731 - a line of progress
        found = await_following(read, wait_s * 1000, waiting.clock, waiting.pause, report)
    silent = [one.name for one in found.programs if one.kind == ROUTER and one.is_silent]
    forget_routers(operator.executor, operator.namespace, silent)
    return found


def _progress(found: Following) -> str:
    alive = len(found.programs) - len(found.silent)
    return f"waiting for {len(found.behind)} of {alive} programs: {', '.join(found.behind)}"


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
