"""`batchfleet roll`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from ...models.store import Store
from ...service.lifecycle import StopSignal
from ...wire.deployment import PRECISIONS, Deployment
from ..deployment import Operator
from ..precision import settle
from ..rolls.commands import RollError, Wish, command, past_rolls, start
from ..rolls.observing import look_at
from ..rolls.plan import PLAN_RANGES, STRATEGIES, Plan, parse_steps
from ..rolls.state import Event, Phase, RollState
from ..rolls.steps import StepContext
from ..trying import judge_precision
from ._shared.connecting import changing, connected
from ._shared.finding import find_version
from ._shared.options import (
    ENVIRONMENTS,
    LOGS,
    BoundedNumber,
    Loaded,
    examples,
    json_option,
    with_settings,
)
from ._shared.output import make_table, moment, print_json, print_table, say, warn
from ._shared.rolls import headline, lines_of, look_json, next_line, watch

_POLL_S = 0.2
_REPORT_LOOKS = 25
_NUMBERS = {
    "hold_s": ("--hold", "SECONDS", "How long each step is held at least."),
    "wait_s": ("--wait", "SECONDS", "How long workers may take to load the version."),
    "min_ready": (
        "--min-ready",
        "WORKERS",
        "Workers that must be ready before traffic moves; 0 = as many as serve the stable version, "
        "as far as they do not refuse this one.",
    ),
    "min_samples": ("--min-samples", "REQUESTS", "Requests of both versions that a step needs."),
    "keep": ("--keep", "VERSIONS", "Versions before that are kept for going back."),
    "max_errors": (
        "--max-errors",
        "POINTS",
        "Percentage points by which the share of errors may be above that of the stable version.",
    ),
    "max_p99_ratio": (
        "--max-p99-ratio",
        "TIMES",
        "How many times the p99 of the stable version, and 50 ms, the p99 may be.",
    ),
    "max_device_time_ratio": (
        "--max-device-time-ratio",
        "TIMES",
        "How many times the device time of a row may be, in steps of 50 % or more.",
    ),
}


def _plan_options(function: Callable[..., Any]) -> Callable[..., Any]:
    defaults = Plan()
    for name, (flag, metavar, text) in reversed(_NUMBERS.items()):
        function = click.option(
            flag,
            name,
            type=BoundedNumber(PLAN_RANGES[name]),
            default=getattr(defaults, name),
            show_default=True,
            metavar=metavar,
            help=text,
        )(function)
    return function


@click.group()
@examples(
    "batchfleet roll start minilm/2 --watch",
    "batchfleet roll start minilm/2 --steps 5,25,100 --hold 60",
    "batchfleet roll status minilm",
    "batchfleet roll rollback minilm",
)
def roll() -> None:
    """Move traffic to another version step by step, and back.

    A roll has workers load a version, moves a growing share of the requests that name no version to
    it, and makes it the stable one. It compares both versions meanwhile; if the new one fails more
    often, is slower, or costs more, all traffic goes back by itself. Steps are taken by
    `batchfleet jobs`; the command line may be closed at any time.
    """


@roll.command("start", short_help="Start a roll to a version.")
@click.argument("name", metavar="MODEL[/VERSION]")
@click.option(
    "--steps",
    default="1,10,50,100",
    show_default=True,
    metavar="PERCENT,…",
    help="Share of the traffic, step by step; the last one is 100.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    help="Load the version beside the stable one, or have one worker after the other change over, "
    "where memory does not suffice for both.  [default: by what the workers say of their memory]",
)
@_plan_options
@click.option(
    "--allow-signature-change",
    is_flag=True,
    help="Roll a version whose inputs or outputs are others than those of the stable one.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Precision of a version published with auto.  [default: as deployed before, else as "
    "measured here]",
)
@click.option("--watch", "is_watched", is_flag=True, help="Show the roll live until it has ended.")
@with_settings(
    *("redis_url", "namespace", "store", "device", "threads", "allow_code", "cache"),
    *ENVIRONMENTS,
    *LOGS,
)
@json_option
@examples(
    "batchfleet roll start minilm/2 --watch",
    "batchfleet roll start minilm/2 --steps 5,25,100 --hold 60 --max-errors 0.5",
    "batchfleet roll start minilm --strategy worker-by-worker",
)
def start_roll(loaded: Loaded, *, name: str, is_watched: bool, as_json: bool, **given: Any) -> None:
    """Start a roll to a version of the store; without VERSION, to the newest one.

    The command returns once workers are ready and the first step has begun; the exit code is 1, and
    no traffic has moved, if they refuse the version or are not ready within --wait. With --watch,
    it returns once the roll has ended; the exit code is 1 unless it was completed.
    """
    plan = Plan(
        weights=parse_steps(given["steps"]),
        strategy=given["strategy"] or "",
        **{number: given[number] for number in _NUMBERS},
    )
    store = Store(loaded.settings.store)
    manifest = find_version(store, name)
    with changing(loaded.settings) as operator:
        deployed = Deployment.from_hash(manifest.model, operator.deploy_hash(manifest.model))
        judge = partial(judge_precision, manifest, loaded.settings, loaded.environ)
        record = settle(manifest, deployed, given["precision"] or "", judge)
        wish = Wish(
            model=manifest.model,
            record=record,
            plan=plan,
            allows_signature_change=given["allow_signature_change"],
        )
        state: RollState | None = start(operator, wish)
        if is_watched and not as_json:
            state = watch(operator, manifest.model)
        else:
            state = _await(operator, state, until_ended=is_watched)
    _print_state(state, as_json=as_json)
    _require_success(state, until_ended=is_watched)


def _await(operator: Operator, state: RollState | None, *, until_ended: bool) -> RollState | None:
    """Wait until the first step has begun, or the roll has ended; say now and then what for."""
    stop = StopSignal()
    stop.install()
    looks = 0
    while state is not None and _is_awaited(state, until_ended=until_ended):
        if stop.wait(_POLL_S):
            break
        look = look_at(operator, state.model)
        if look is None or look.state.roll != state.roll:
            break
        state, looks = look.state, looks + 1
        if looks % _REPORT_LOOKS == 0:
            say(next_line(look), err=True)
    return state


def _is_awaited(state: RollState, *, until_ended: bool) -> bool:
    if until_ended:
        return not state.has_ended
    return not state.step and state.phase in (Phase.LOADING, Phase.REFUSING)


def _print_state(state: RollState | None, *, as_json: bool) -> None:
    if state is None:
        return
    if as_json:
        print_json(state.to_json())
    else:
        say(headline(state))


def _require_success(state: RollState | None, *, until_ended: bool) -> None:
    """Fail where the roll has.

    Raises:
        RollError: it was refused, or went back; the text says why.
    """
    if state is None or state.phase is Phase.COMPLETED:
        return
    if state.has_ended:
        done = "was refused" if state.phase is Phase.REFUSED else "was rolled back"
        raise RollError(f"{state.model}/{state.target} {done}: {state.reason}")
    if until_ended:
        raise RollError(f"the roll of {state.model} goes on; `batchfleet roll status` shows it")


@roll.command("status", short_help="Show where a roll stands.")
@click.argument("model")
@click.option("--watch", "is_watched", is_flag=True, help="Show it live until it has ended.")
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples(
    "batchfleet roll status minilm",
    "batchfleet roll status minilm --watch",
    "batchfleet roll status minilm --json",
)
def status(loaded: Loaded, *, model: str, is_watched: bool, as_json: bool) -> None:
    """Show where the roll of a model stands, and what it waits for."""
    with connected(loaded.settings) as operator:
        look = look_at(operator, model)
        if look is None:
            raise RollError(f"{model} has no roll")
        if is_watched and not as_json:
            watch(operator, model)
            return
    if as_json:
        print_json(look_json(look))
    else:
        say(*lines_of(look))


def _command(name: str, event: Event, text: str, details: str) -> click.Command:
    """A command that changes a roll."""

    @roll.command(name, short_help=text)
    @click.argument("model")
    @with_settings("redis_url", "namespace", "store", *LOGS)
    @json_option
    def run(loaded: Loaded, *, model: str, as_json: bool) -> None:
        with changing(loaded.settings) as operator:
            context = StepContext(
                operator=operator,
                store=Store(loaded.settings.store),
                tell=lambda _: None,
                tell_copy=lambda model, error: warn(f"no copy of {model} was written: {error}"),
            )
            state = command(context, model, event)
        _print_state(state, as_json=as_json)

    run.help = f"{text}\n\n{details}\n\n\b\nExamples:\n  batchfleet roll {name} minilm"
    return run


pause = _command(
    "pause",
    Event.PAUSE,
    "Stay at the present step.",
    "No further step is taken. The limits still hold: if one breaks, all traffic goes back.",
)
resume = _command(
    "resume",
    Event.RESUME,
    "End a pause.",
    "The step begins anew once its workers are ready; what was counted in it still counts.",
)
promote = _command(
    "promote",
    Event.PROMOTE,
    "Make the new version the stable one now.",
    "All further steps are left out. The version before stays loaded until it has answered what "
    "it was given.",
)
rollback = _command(
    "rollback",
    Event.ROLL_BACK,
    "Move all traffic back.",
    "The new version is taken out of service once it has answered what it was given.",
)


@roll.command("history", short_help="List the rolls of a model that have ended.")
@click.argument("model")
@with_settings("redis_url", "namespace", *LOGS)
@json_option
@examples("batchfleet roll history minilm", "batchfleet roll history minilm --json")
def history(loaded: Loaded, *, model: str, as_json: bool) -> None:
    """List the rolls of a model that have ended, the newest first, and why they ended so."""
    with connected(loaded.settings) as operator:
        found = past_rolls(operator, model)
    if as_json:
        print_json({"rolls": [state.to_json() for state in found]})
        return
    table = make_table(None, "ended", "from", "to", "outcome", "steps", "started by", "reason")
    for state in found:
        table.add_row(
            moment(state.history[-1].at_ms) if state.history else "",
            state.source,
            state.target,
            state.phase.replace("_", " "),
            f"{state.step} of {len(state.plan.weights)}",
            state.by,
            state.reason,
        )
    if found:
        print_table(table)
    say(f"{len(found)} rolls have ended")
