"""How a roll is shown: in words, as a table, and live."""

import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ....service.lifecycle import StopSignal
from ....wire.texts import terminal_text
from ...deployment import Operator
from ...rolls.deciding import decide
from ...rolls.observing import Look, look_at
from ...rolls.picture import MEASURES, Series, highest_of, spark
from ...rolls.state import Phase, RollState
from .output import console, make_table, moment
from .streams import AsciiText

_WATCH_S = 1.0


def headline(state: RollState) -> str:
    """Where a roll stands, in one line."""
    phase = state.phase.replace("_", " ")
    step = f", step {state.step} of {len(state.plan.weights)}" if state.step else ""
    weight = f", {state.weight:g} % of the traffic" if state.weight else ""
    return f"{state.model}: {state.source} → {state.target}: {phase}{step}{weight}"


def lines_of(look: Look) -> Iterator[str]:
    """A roll for people."""
    state = look.state
    yield headline(state)
    yield f"started by {state.by}, {moment(state.history[0].at_ms) if state.history else ''}"
    if state.reason:
        yield state.reason
    if not state.has_ended:
        yield next_line(look)


def next_line(look: Look) -> str:
    """What is waited for."""
    reason = decide(look.state, look.seen, look.now_ms).reason
    left_s = (look.state.due_ms - look.now_ms) / 1000
    if look.state.phase is Phase.SHIFTING and left_s > 0:
        return f"next step in {left_s:.0f} s" + (f"; {reason}" if reason else "")
    return reason or "the next step is due"


def look_json(look: Look) -> dict[str, Any]:
    """A roll for scripts."""
    decision = decide(look.state, look.seen, look.now_ms)
    total = look.seen.since(look.state)
    return {
        **look.state.to_json(),
        "next": decision.reason,
        "next_ms": max(0, look.state.due_ms - look.now_ms),
        "ready": sorted(look.seen.ready),
        "counts": {look.state.source: total.stable, look.state.target: total.canary},
    }


def counts_table(look: Look, series: Series) -> RenderableType:
    """What both versions did in this step, and in each of the last seconds."""
    state, total = look.state, look.seen.since(look.state)
    table = make_table(None, "version", ">weight", ">requests", ">errors", ">p50 ms", ">p99 ms")
    weight = {state.source: 100 - state.weight, state.target: state.weight}
    if look.seen.stable == state.target:
        weight = {state.source: 0.0, state.target: 100.0}
    for name, stats in ((state.source, total.stable), (state.target, total.canary)):
        p50, p99 = stats.quantile_ms(0.5), stats.quantile_ms(0.99)
        table.add_row(
            name,
            f"{weight[name]:g} %",
            str(stats.total),
            f"{stats.errors / stats.total:.1%}" if stats.total else "",
            "" if p50 is None else f"{p50:.0f}",
            "" if p99 is None else f"{p99:.0f}",
        )
    return Group(table, _sparks(state, series))


def _sparks(state: RollState, series: Series) -> RenderableType:
    table = make_table(None, "last seconds", "version", "", ">now")
    is_ascii = isinstance(sys.stdout, AsciiText)
    for title, measure in MEASURES.items():
        values = {name: series.values(name, measure) for name in (state.source, state.target)}
        highest = highest_of(*values.values())
        for name, row in values.items():
            last = next((value for value in reversed(row) if value is not None), None)
            line = spark(row, highest, is_ascii=is_ascii)
            table.add_row(title, name, line, "" if last is None else f"{last:.1f}")
    return table


def watch(operator: Operator, model: str) -> RollState | None:
    """Show a roll live until it has ended, or Ctrl-C; its last state."""
    stop = StopSignal()
    stop.install()
    series = Series()
    state: RollState | None = None
    with Live(console=console(), auto_refresh=False) as live:
        while (look := look_at(operator, model)) is not None:
            state = look.state
            series.add(look.seen.counts, (state.source, state.target), look.now_ms)
            live.update(render(look, series), refresh=True)
            if state.has_ended or stop.wait(_WATCH_S):
                break
    return state


def render(look: Look, series: Series) -> RenderableType:
    """A roll with its pictures."""
    texts = [Text(terminal_text(line)) for line in lines_of(look)]
    return Group(*texts, counts_table(look, series))
