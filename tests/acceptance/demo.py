"""A real model served end to end: what issue 1 promises."""

import click

from benchmarks.processes import run_for_json
from benchmarks.quiet import wait_until_quiet
from tests.support.fleet import draft_of

from .measuring import this_cpu
from .measuring.delivery import same_id_at_once, sent_again
from .measuring.embedding import long_request, many_texts, two_commands
from .measuring.own_fleet import own_fleet
from .measuring.plain_minilm import PlainMinilm
from .measuring.promise import at_least, at_most, attempt, equals
from .measuring.up import STORE, minilm, up

_DEMO_TIMEOUT_S = 1200.0
_FLOOR_TIMEOUT_S = 900.0
_QUICK_TEXTS = "300"


def measure(*, quick):
    """All figures of the demo, of answers on real text, of delivery, and of the raw floor."""
    return [
        *attempt("answers on real texts", embedding),
        *attempt("one answer for each request", delivery),
        *attempt("the demo", lambda: demo(quick=quick)),
        *attempt("the raw floor", lambda: floor(quick=quick)),
    ]


def embedding():
    """Two workers with the real model."""
    manifest, folder = minilm()
    judge = PlainMinilm(folder)
    with up(models="minilm", workers=2) as fleet:
        return [
            *attempt("two commands", lambda: two_commands(fleet, judge)),
            *attempt("many texts", lambda: many_texts(fleet, judge, manifest)),
            *attempt("a request of many rows", lambda: long_request(fleet, judge, manifest)),
        ]


def delivery():
    """One worker with the model that tells what it ran."""
    with own_fleet(draft_of("echo", "echo")) as fleet:
        return [
            *attempt("the same id at once", lambda: same_id_at_once(fleet)),
            *attempt("sent again", lambda: sent_again(fleet)),
        ]


def demo(*, quick):
    """The whole of `batchfleet demo`, judged by its last line."""
    if not quick:
        click.echo(wait_until_quiet(), err=True)
    texts = ("--texts", _QUICK_TEXTS) if quick else ()
    arguments = ["demo", "--store", STORE, *texts]
    finished = run_for_json("batchfleet.ops", arguments, _DEMO_TIMEOUT_S)
    line = finished.last_line
    naive_ratio = line["throughput_per_s"] / line["naive_per_s"]
    ideal_ratio = line["throughput_per_s"] / line["ideal_per_s"]
    return [
        equals("the demo: exit code", finished.exit_code, 0),
        equals("… errors", line["errors"], 0),
        at_least("… throughput ÷ naive", naive_ratio, 1.5 if this_cpu.here() else 1.2),
        at_least("… throughput ÷ ideal", ideal_ratio, 0.85),
        at_least("… mean batch", line["mean_batch"], 4),
        at_most("… padded ÷ real tokens", line["padding_ratio"], 1.3),
        equals("… questions with a named module among the best", _found(line["found"]), 3),
        *_beside(line["auto"], line["throughput_per_s"]),
    ]


def _beside(auto, exact_per_s):
    """The same texts with precision auto."""
    named = f"the demo with precision auto: {auto['engine']}, {auto['throughput_per_s']:.0f}/s"
    ratio = auto["throughput_per_s"] / exact_per_s
    return [
        equals(f"{named} ({ratio:.2f} × exact): errors", auto["errors"], 0),
        equals("… questions that find the same texts in the same order", auto["same_results"], 3),
        at_least("… least cosine with exact", auto["least_cosine"], 0.999),
    ]


def _found(modules):
    return sum(module is not None for module in modules)


def floor(*, quick):
    """`make bench-floor`, judged by its last line."""
    arguments = ["--json", *(("--quick",) if quick else ())]
    line = run_for_json("benchmarks.floor", arguments, _FLOOR_TIMEOUT_S).last_line
    return [
        at_least("noop, 256 callers: throughput ÷ raw floor", line["noop_vs_floor"], 0.5),
        at_most("noop, one caller: p50 ÷ raw floor", line["latency_vs_floor"], 1.9),
    ]
