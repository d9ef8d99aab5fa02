"""Eight kinds of bad version: six never take traffic, two go back by themselves.

All are rolled onto under a steady load of the stable version, whose callers must not notice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from tests.acceptance.measuring.pause import pause_s
from tests.acceptance.measuring.promise import at_most, attempt, equals
from tests.acceptance.measuring.steady_load import OK
from tests.support.fleet import until
from tests.support.wheels import lock_file, make_wheel

from .arena import quiet, rolling_fleet, steady
from .commands import command, must
from .gaps import SLACK_MS, Mark, Span, longest_gap_ms, misnamed
from .records import OVER, ROLLED_BACK, Watch, record_of, wait_over
from .versions import Stub, publish

MODEL = "stub"
_RATE_PER_S = 100.0
_COST = {"base_ms": 2.0, "row_ms": 8.0}
_OPTIONS = ("--steps", "20,50,100", "--hold", "3", "--strategy", "beside")
# Every twentieth text ends in this.
_BAD_END = "7!"
_TEXTS = tuple(f"text {at:02}{_BAD_END if at % 20 == 7 else ''}" for at in range(100))
_GOLDEN = {
    "golden": [
        {
            "inputs": {"text": ["hello"]},
            "outputs": [{"name": "length", "datatype": "INT64", "shape": [1], "data": [7]}],
            "tolerance": 0.0,
        }
    ]
}


def _nothing(_fleet, _folder):
    """The author has done it all."""


def _corrupt(_fleet, folder):
    """One byte of a file is another one."""
    path = folder / "model.py"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def _remove(_fleet, folder):
    (folder / "model.py").unlink()


_GOOD = Stub(**_COST)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadVersion:
    """What is wrong, what is done to the published files, and a word that the reason holds."""

    name: str
    stub: Stub = _GOOD
    spoil: Callable = _nothing
    needs_package: bool = False
    says: str


REFUSED_KINDS = (
    BadVersion(name="corrupt file", spoil=_corrupt, says="model.py"),
    BadVersion(name="missing file", spoil=_remove, says="model.py"),
    BadVersion(
        name="load raises",
        stub=Stub(**_COST, load="raise ValueError('these weights do not fit')"),
        says="these weights do not fit",
    ),
    BadVersion(
        name="load segfaults",
        stub=Stub(**_COST, load="import ctypes; ctypes.string_at(0)"),
        says="",
    ),
    BadVersion(name="golden mismatch", stub=Stub(**_COST, manifest=_GOLDEN), says="golden"),
    BadVersion(name="environment missing", needs_package=True, says="environment"),
)
RETURNED_KINDS = (
    BadVersion(
        name="three times slower",
        stub=Stub(**{name: 3 * cost for name, cost in _COST.items()}),
        says="",
    ),
    BadVersion(
        name="errors on 5 % of inputs",
        stub=Stub(
            **_COST,
            predict=f"assert not any(row['text'].endswith({_BAD_END!r}) for row in rows), 'odd'",
        ),
        says="error",
    ),
)


def bad_versions(*, quick):
    """All of them in one fleet, one after the other, and what the stable one's callers noticed."""
    refused = REFUSED_KINDS[2:5:2] if quick else REFUSED_KINDS
    returned = RETURNED_KINDS[1:] if quick else RETURNED_KINDS
    judged = [(kind, _is_refused) for kind in refused] + [(kind, _is_returned) for kind in returned]
    with (
        rolling_fleet({f"{MODEL}/1": _GOOD}) as fleet,
        steady(fleet, MODEL, _RATE_PER_S, texts=_TEXTS) as load,
        Watch(fleet, MODEL) as watch,
    ):
        arena = Arena(fleet=fleet, load=load, watch=watch)
        pause_s(2.0)
        arena.quiet = quiet(8.0 if quick else 20.0)
        promises = [
            promise
            for kind, judge in judged
            for promise in attempt(kind.name, lambda kind=kind, judge=judge: judge(arena, kind))
        ]
        load.stop()
        return [*promises, *_untouched(arena)]


@dataclass(slots=True, kw_only=True)
class Arena:
    """What all kinds share. `quiet`: a span in which nothing happened."""

    fleet: object
    load: object
    watch: Watch
    quiet: Span = None
    count: int = 1
    canaries: list = field(default_factory=list)

    def publish(self, kind):
        """Publish a bad version under a new name; returns that."""
        self.count += 1
        name = f"{MODEL}/{self.count}"
        if kind.needs_package:
            _publish_with_package(self.fleet, kind.stub, self.count)
        else:
            kind.spoil(self.fleet, publish(self.fleet, name, kind.stub))
        return name


def _publish_with_package(fleet, stub, version):
    """A version whose environment nobody has built."""
    wheel = make_wheel(Path(fleet.folder) / "wheels", "flavour", str(version), "NAME = 'sour'\n")
    lock = lock_file(Path(fleet.folder) / "requirements.lock", wheel)
    fleet.publish_code(stub.source, MODEL, str(version), class_name="Version", requirements=lock)


def _is_refused(arena, kind):
    """The roll does not begin, or ends before any traffic moves."""
    name = arena.publish(kind)
    done = command(arena.fleet, "roll", "start", name, *_OPTIONS)
    record = record_of(arena.fleet, MODEL)
    pause_s(1.0)
    span = Span(began=done.began, ended=perf_counter())
    moved = [
        one
        for one in arena.watch.between(span.began, span.ended)
        if one.canary[1] or one.stable != "1"
    ]
    return [
        equals(f"{kind.name}: exit code", done.exit_code, 1),
        equals("… the reason is told", kind.says in done.told and name in done.told, True),
        equals("… the roll is over", record.phase in ("", *OVER), True),
        equals("… records that gave it traffic", len(moved), 0),
        equals("… offered afterwards", sorted(record.offered), ["1"]),
        *_unnoticed(arena, "", span),
    ]


def _is_returned(arena, kind):
    """The roll begins, and goes back by itself."""
    name = arena.publish(kind)
    canary = name.partition("/")[2]
    arena.canaries.append(canary)
    done = must(arena.fleet, "roll", "start", name, *_OPTIONS)
    record = wait_over(arena.fleet, MODEL)
    mark = Mark.now(arena.fleet, arena.load)
    pause_s(2.0)
    span = Span(began=done.began, ended=perf_counter())
    reason = record.roll.get("reason", "")
    words = (("status",), ("status", "--json"), ("history", "--json"))
    told = [command(arena.fleet, "roll", *some, MODEL).out for some in words]
    later = mark.later_answers(arena.load, span.ended)
    return [
        equals(f"{kind.name}: goes back by itself ({reason})", record.phase, ROLLED_BACK),
        equals("… the reason", bool(reason) and kind.says in reason, True),
        equals("… status and history that tell it", sum(_tells(one, reason) for one in told), 3),
        equals("… stable afterwards", record.stable, "1"),
        equals("… later answers of it", sum(one.version != "1" for one in later), 0),
        *_unnoticed(arena, canary, span),
    ]


def _tells(out, reason):
    """Whether a reason is shown, however its lines are broken."""
    return bool(reason) and "".join(reason.split()) in "".join(out.split())


def _unnoticed(arena, canary, span):
    """Gaps and errors that are not the canary's."""
    normal_ms = longest_gap_ms(arena.load, arena.quiet)
    return [
        equals("… errors that are not the canary's own", _of_others(arena, canary, span), 0),
        at_most(
            f"… longest gap between answers, ms ({normal_ms:.0f} in a quiet span)",
            longest_gap_ms(arena.load, span),
            round(normal_ms + SLACK_MS, 1),
        ),
    ]


def _of_others(arena, canary, span):
    """Requests of a span that failed, but for those that the canary itself has answered so."""
    sent = arena.load.between(span.began, span.ended)
    until(lambda: all(one.over_at for one in sent), "all are answered")
    failures = [one for one in sent if one.outcome != OK]
    own = [one for one in failures if one.handle and _answered_by(arena.fleet, one) == canary]
    return len(failures) - len(own)


def _answered_by(fleet, one):
    return fleet.reply(MODEL, one.handle.id).version


def _untouched(arena):
    """What holds for all of them."""
    load, known = arena.load, {"1", *arena.canaries}
    answers = [one for one in load.requests if one.outcome == OK]
    return [
        equals("all kinds: answers under a wrong name", misnamed(load), 0),
        equals(
            "… answers of a version that was refused",
            sum(one.version not in known for one in answers),
            0,
        ),
    ]
