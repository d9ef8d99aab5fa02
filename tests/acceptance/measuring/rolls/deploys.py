"""`deploy` under load: of a version that loads for seconds, of one that cannot load, and back.

And many versions one after the other, of which the worker must keep no more than the first few.
"""

from contextlib import ExitStack
from time import perf_counter

import psutil

from tests.acceptance.measuring.own_fleet import own_fleet
from tests.acceptance.measuring.pause import pause_s
from tests.acceptance.measuring.promise import at_most, equals
from tests.acceptance.measuring.steady_load import LoadPlan, SteadyLoad
from tests.support.fleet import draft_of, until

from .commands import command, must
from .gaps import Mark, Span, longest_gap_ms, misnamed, no_errors, no_longer_gap
from .versions import Stub, publish

_WORKERS = 3
_RATES_PER_S = {"slow": 30.0, "echo": 20.0}
_LOAD_S = 6.0
_TIMEOUT_MS = 30_000
_SETTLED_S = 15.0
_MEMORY_RATIO = 1.05


def plain_deploys(*, quick):
    """A good version, one that raises in `load`, and back to the first one."""
    load_s = 2.0 if quick else _LOAD_S
    with own_fleet(draft_of("echo", "echo"), workers=_WORKERS, allow_code="own") as fleet:
        for version in ("1", "2"):
            publish(fleet, f"slow/{version}", Stub(load_s=load_s))
        publish(fleet, "slow/3", Stub(load="raise ValueError('these weights do not fit')"))
        must(fleet, "deploy", "slow/1")
        fleet.wait_until_served("slow", "1", _WORKERS)
        with ExitStack() as stack:
            loads = {
                model: stack.enter_context(
                    SteadyLoad(
                        fleet, LoadPlan(model=model, rate_per_s=rate, timeout_ms=_TIMEOUT_MS)
                    )
                )
                for model, rate in _RATES_PER_S.items()
            }
            pause_s(2.0)
            quiet = _quiet(8.0 if quick else 20.0)
            steps = [_step(fleet, loads["slow"], version) for version in ("2", "3", "1")]
            for load in loads.values():
                load.stop()
    return _promises(loads, quiet, steps)


def _quiet(seconds):
    began = perf_counter()
    pause_s(seconds)
    return Span(began=began, ended=perf_counter())


def _step(fleet, load, version):
    """Deploy a version: how that ended, the moment after it, and a record before and after."""
    before = _record(fleet)
    done = command(fleet, "deploy", f"slow/{version}", "--wait", "60")
    mark, after = Mark.now(fleet, load), _record(fleet)
    pause_s(2.0)
    return done, mark, before == after


def _record(fleet):
    """What the deploy record says: the stable version, and what else is served."""
    found = fleet.server.hgetall(fleet.keys("slow").deploy)
    offered = sorted(name for name in found if name.startswith(b"version:"))
    return found[b"stable"], offered, found.get(b"canary")


def _promises(loads, quiet, steps):
    (good, good_mark, _), (bad, _, unchanged), (back, back_mark, _) = steps
    whole = Span(began=quiet.ended, ended=steps[-1][1].at + 2.0)
    normal_ms = {model: longest_gap_ms(load, quiet) for model, load in loads.items()}
    gaps = {
        model: [
            longest_gap_ms(load, Span(began=done.began, ended=mark.at + 2.0))
            for done, mark, _ in steps
        ]
        for model, load in loads.items()
    }
    until_bad = good_mark.later_answers(loads["slow"], bad.began)
    return [
        equals(
            "deploy of a good version, of one that raises, and back: exit codes",
            f"{good.exit_code}, {bad.exit_code}, {back.exit_code}",
            "0, 1, 0",
        ),
        equals("… the reason is told", "these weights do not fit" in bad.told, True),
        equals("… after the refusal the record is as before", unchanged, True),
        *[no_errors(f"… {model}", load, whole) for model, load in loads.items()],
        *[
            no_longer_gap(f"… {model}, the longest of three deploys", max(found), normal_ms[model])
            for model, found in gaps.items()
        ],
        equals("… later answers of 1 once 2 is deployed", _of(until_bad, "1"), 0),
        equals(
            "… later answers of 2 once 1 is back",
            _of(back_mark.later_answers(loads["slow"]), "2"),
            0,
        ),
        equals("… answers under a wrong name", sum(map(misnamed, loads.values())), 0),
        at_most("… seconds that deploying took, most", _longest_s(good, bad, back), 60.0),
    ]


def _of(answers, version):
    return sum(one.version == version for one in answers)


def _longest_s(*commands):
    return max(done.ended - done.began for done in commands)


def many_versions(*, quick):
    """Versions of 16 MB, deployed in turn on a worker that serves another model as well."""
    count = 8 if quick else 30
    with own_fleet(draft_of("echo", "echo"), allow_code="own") as fleet:
        sizes_mb, processes = [], []
        for at in range(1, count + 1):
            publish(fleet, f"many/{at}", Stub(holds_mb=16))
            must(fleet, "deploy", f"many/{at}")
            fleet.wait_until_served("many", str(at))
            sizes_mb.append(settled_rss_mb(fleet.workers[0].pid))
            processes.append(len(psutil.Process(fleet.workers[0].pid).children(recursive=True)))
        answered = fleet.ask("many").version
    return [
        at_most(
            f"{count} versions of 16 MB in turn, {sizes_mb[0]:.0f} MB after the first: memory of "
            f"the worker ÷ {sizes_mb[2]:.0f} MB after the third",
            sizes_mb[-1] / sizes_mb[2],
            _MEMORY_RATIO,
        ),
        at_most("… most processes under it at once", max(processes[2:]), max(processes[:3])),
        equals("… the last one answers", answered, str(count)),
    ]


def settled_rss_mb(pid):
    """Memory of a process and all that it has started, once that stays the same for a second."""
    seen = [rss_mb(pid)]

    def is_settled():
        pause_s(0.25)
        seen.append(rss_mb(pid))
        last = seen[-5:]
        return len(last) == 5 and max(last) - min(last) < 0.01 * last[-1]

    until(is_settled, f"the memory of {pid} stays the same: {seen}", _SETTLED_S)
    return seen[-1]


def rss_mb(pid):
    """Resident memory of a process and all that it has started."""
    worker = psutil.Process(pid)
    total = 0
    for process in (worker, *worker.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue  # it ended meanwhile
    return total / 1e6
