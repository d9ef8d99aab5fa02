"""How fast a fleet embeds beside the plain engine, beside no fleet at all, and beside a loop."""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np

from batchfleet.models.importing import MINILM_AUTO, MINILM_EXACT
from batchfleet.ops.demo.command import Baseline
from batchfleet.wire.deployment import EXACT
from benchmarks.processes import Conversation

from . import this_cpu
from .callers import in_turns
from .embedding import docstrings
from .encoders import BY_HAND, PLAIN, encoder_fleet, engine_in_use
from .peers import peer_packages
from .plain_minilm import PlainMinilm
from .promise import at_least, at_most, skipped
from .up import minilm

CALLERS = 64
_SORTED_SIZES = (8, 16, 32)
_LOOP_SIZES = (1, 4, 8, 16)
_LOOP_S = 600.0
_LOOP = "encoder_vs_onnxruntime_loop"
_LOOP_MODULE = "tests.acceptance.measuring.onnx_loop"
_NAMES = {MINILM_EXACT: "encoder_exact", MINILM_AUTO: "encoder_auto"}
# Two runs of one engine differ by so much: 1.0 would be a coin's to say.
_SAME = 0.95
# By precision: bound and goal on the CPU on which they were measured first.
_FIRST_CPU = {MINILM_EXACT: (1.5, 1.7), MINILM_AUTO: (2.5, 2.8)}


@cache
def encoder_texts(count):
    """So many real texts that need no cutting, in an order that looks random."""
    _, folder = minilm()
    return docstrings(PlainMinilm(folder), 256)[:count]


@dataclass(frozen=True)
class Round:
    """One turn of everything: runs of the fleet by model, texts a second without one by engine."""

    fleet: dict
    offline: dict
    loop: dict


def encoder_speed(*, quick):
    """All models and engines take turns, on the same texts, in one fleet."""
    texts = encoder_texts(96 if quick else 512)
    rounds = 1 if quick else 5
    packages, why_not = peer_packages()
    with encoder_fleet(MINILM_AUTO, MINILM_EXACT, PLAIN, BY_HAND) as (fleet, judged):
        in_use = {model: engine_in_use(fleet, model) for model in (MINILM_EXACT, MINILM_AUTO)}
        bench = _Bench(fleet, texts)
        engines = dict.fromkeys(["plain", *in_use.values(), *judged.serving.values()])
        with _loop(packages) as loop:
            found = [bench.take_turns(engines, loop) for _ in range(rounds + 1)][1:]
    best = {MINILM_EXACT: judged.serving[EXACT], MINILM_AUTO: judged.serving[judged.settled]}
    return [
        *(_beside_plain(found, model, in_use[model], best[model]) for model in in_use),
        *(_beside_ideal(found, model, best[model]) for model in in_use),
        *_beside_loop(found, why_not),
        *_beside_hand(found),
    ]


class _Bench:
    """Runs the same texts in all ways, one after the other."""

    def __init__(self, fleet, texts):
        self._fleet, self._texts = fleet, texts
        self._sizes = {}

    def take_turns(self, engines, loop):
        models = (PLAIN, MINILM_EXACT, MINILM_AUTO, BY_HAND)
        fleet = {model: in_turns(self._fleet, model, self._texts, CALLERS) for model in models}
        offline = {engine: self._offline(engine) for engine in engines}
        return Round(fleet, offline, {} if loop is None else self._beside(loop))

    def _offline(self, engine):
        """Texts a second without a fleet, sorted by length, in batches of the best size."""
        baseline = Baseline(
            store=self._fleet.store.root,
            model=MINILM_EXACT,
            version="1",
            threads=1,
            texts=self._texts,
        )
        sizes = self._sizes.get(engine, _SORTED_SIZES)
        return self._best(engine, baseline.rates(sizes, sort=True, engine=engine))

    def _beside(self, loop):
        """The loop's texts a second, and one caller's median beside the loop's."""
        ask = {"texts": self._texts, "vectors": False}
        rates = {
            size: loop.ask({**ask, "batch": size}, _LOOP_S)["per_s"]
            for size in self._sizes.get(_LOOP, _LOOP_SIZES)
        }
        single = self._texts[:64]
        told = loop.ask({"texts": single, "batch": 1, "vectors": True}, _LOOP_S)
        alone = in_turns(self._fleet, MINILM_EXACT, single, 1)
        return {
            "per_s": self._best(_LOOP, rates),
            "batch": self._sizes[_LOOP][0],
            "more_ms": alone.p50_ms - told["p50_ms"],
            "p50_ms": told["p50_ms"],
            "cosine": _least_cosine(self._fleet, single[:16], told["vectors"]),
        }

    def _best(self, name, rates):
        """The best rate; after the first time only its size is run."""
        size = max(rates, key=rates.get)
        self._sizes[name] = (size,)
        return rates[size]


def _least_cosine(fleet, texts, vectors):
    """Of the fleet's vectors and others of length 1: a peer has to do the same work."""
    replies = [fleet.ask(MINILM_EXACT, text) for text in texts]
    ours = [np.array(reply.outputs[0]["data"], np.float32) for reply in replies]
    return min(float(one @ np.array(other)) for one, other in zip(ours, vectors, strict=False))


@contextmanager
def _loop(packages):
    """A conversation with the loop; None without its packages."""
    if packages is None:
        yield None
        return
    _, folder = minilm()
    with Conversation(_LOOP_MODULE, str(packages), str(folder)) as loop:
        loop.start(_LOOP_S)
        yield loop


def _beside_plain(found, model, in_use, offline_best):
    """The fleet with a model ÷ the fleet with the plain engine only."""
    named = f"{_NAMES[model]}_vs_plain"
    ratio = median(one.fleet[model].per_s / one.fleet[PLAIN].per_s for one in found)
    offline = median(one.offline[offline_best] / one.offline["plain"] for one in found)
    rate = median(one.fleet[model].per_s for one in found)
    words = f"{named}: engine {in_use}, {rate:.1f}/s at {CALLERS} callers; offline {offline:.2f} ×"
    least, goal = _FIRST_CPU[model]
    if this_cpu.here():
        bound = max(least, 0.9 * offline)
        return at_least(f"{words}; bound of the first CPU, goal {goal}", ratio, bound)
    others = f"{words}; bound of other CPUs (≥ {least}, goal {goal} are an AMD's)"
    if in_use == offline_best == "plain":
        return at_least(f"{others}: the worker chose plain itself, both are the same", ratio, _SAME)
    bound = max(1.0, 0.9 * offline)
    return at_least(others, ratio, bound)


def _beside_ideal(found, model, best):
    """The fleet ÷ the best engine of the precision without a fleet, texts sorted by length."""
    ratio = median(one.fleet[model].per_s / one.offline[best] for one in found)
    ideal = median(one.offline[best] for one in found)
    named = f"{_NAMES[model]}_vs_ideal: {best} without a fleet {ideal:.1f}/s"
    return at_least(named, ratio, 0.90)


def _beside_loop(found, why_not):
    if why_not:
        return [skipped(_LOOP, why_not), skipped(f"{_LOOP}: p50 of one caller", why_not)]
    ratio = median(one.fleet[MINILM_EXACT].per_s / one.loop["per_s"] for one in found)
    per_s = median(one.loop["per_s"] for one in found)
    p50_ms = median(one.loop["p50_ms"] for one in found)
    batch = found[-1].loop["batch"]
    return [
        at_least(f"{_LOOP}: {per_s:.1f}/s in batches of {batch}, exact", ratio, 1.0),
        at_most(
            f"p50 of one caller less the loop's {p50_ms:.1f} ms, ms",
            median(one.loop["more_ms"] for one in found),
            1.2,
        ),
        at_least("… least cosine of both", min(one.loop["cosine"] for one in found), 0.99999),
    ]


def _beside_hand(found):
    pairs = [(one.fleet[MINILM_EXACT], one.fleet[BY_HAND]) for one in found]
    return [
        at_least(
            "limits of the import ÷ set by hand: throughput",
            median(auto.per_s / by_hand.per_s for auto, by_hand in pairs),
            0.97,
        ),
        at_most(
            "… p99 (two runs of the same differ by 5 %)",
            median(auto.p99_ms / by_hand.p99_ms for auto, by_hand in pairs),
            1.05,
        ),
    ]
