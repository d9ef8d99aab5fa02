"""What callers notice of a change: gaps between answers, errors, and the versions that answer."""

from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from tests.acceptance.measuring.promise import at_most, equals
from tests.acceptance.measuring.steady_load import OK, outcomes
from tests.support.fleet import digests

SLACK_MS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From when to when something went on, by `perf_counter`."""

    began: float
    ended: float

    @property
    def seconds(self):
        return self.ended - self.began

    def before(self, since):
        """As long a span just before this one, but not from before `since`."""
        return Span(began=max(since, self.began - self.seconds), ended=self.began)


def longest_gap_ms(load, span):
    """The longest time without an answer, the ends of the span included."""
    return longest_gap(load, span)[0]


def longest_gap(load, span):
    """The same, and how many seconds after the begin of the span it began."""
    answers = sorted(
        one.over_at
        for one in list(load.requests)
        if one.outcome == OK and span.began <= one.over_at <= span.ended
    )
    moments = pairwise([span.began, *answers, span.ended])
    gap_s, at = max((after - before, before) for before, after in moments)
    return 1000 * gap_s, at - span.began


def failed(load, span):
    """Requests sent within a span that became anything but an answer."""
    return [one for one in load.between(span.began, span.ended) if one.outcome != OK]


def misnamed(load):
    """Answers that a version other than the one they name has computed."""
    wrong = 0
    for one in load.requests:
        if one.outcome == OK:
            texts = load.plan.texts or (load.plan.text,)
            known = set(digests(texts, one.version))
            wrong += one.outputs["digest"][0] not in known
    return wrong


def unanswered(fleet, load):
    """Requests that have no reply on the server now: their version is still open."""
    waiting = [one for one in list(load.requests) if not one.over_at]
    sent = [one for one in waiting if one.handle is not None]
    with fleet.server.pipeline(transaction=True) as pipe:
        for one in sent:
            pipe.exists(fleet.keys(one.handle.model).reply("default", one.handle.id))
        replied = {id(one) for one, there in zip(sent, pipe.execute(), strict=True) if there}
    return [one for one in waiting if id(one) not in replied]


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment at which a change was complete: what was open then, and when that was."""

    at: float
    open: list

    @staticmethod
    def now(fleet, load):
        return Mark(perf_counter(), unanswered(fleet, load))

    def later_answers(self, load, until=float("inf")):
        """Answers that were given after this moment, to what was sent up to another one."""
        later = [*self.open, *load.between(self.at, until)]
        return [one for one in later if one.outcome == OK]


def no_errors(title, load, span):
    """No request sent in the span became anything else than an answer."""
    sent = load.between(span.began, span.ended)
    return equals(f"{title}: errors ({outcomes(sent)})", sum(one.outcome != OK for one in sent), 0)


def no_longer_gap(title, gap_ms, normal_ms, slack_ms=SLACK_MS):
    """The longest gap is no longer than the one before, and some."""
    return at_most(
        f"{title}: longest gap between answers, ms ({normal_ms:.0f} before)",
        gap_ms,
        round(normal_ms + slack_ms, 1),
    )
