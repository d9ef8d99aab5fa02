"""The life of a request as one table; `docs/states.md` is drawn from it.

`submitted` is an entry in an ingress stream that no router has looked at. Only `accepted` is a
promise: it ends in exactly one terminal state. `refused` promises nothing and may be tried again
under the same id. Whether an accepted request waits or runs is not stored anywhere; it is derived
from the worker that holds it.
"""

from enum import Enum


class State(Enum):
    """Where a request stands."""

    UNKNOWN = "unknown"
    SUBMITTED = "submitted"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    OK = "ok"
    ERROR = "error"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"


class Event(Enum):
    """What can happen to a request."""

    ADD = "add"
    ACCEPT = "accept"
    REFUSE = "refuse"
    REPEAT = "repeat"
    ANSWER = "answer"
    FAIL = "fail"
    EXPIRE = "expire"
    CANCEL = "cancel"


TERMINAL = frozenset({State.OK, State.ERROR, State.DEADLINE_EXCEEDED, State.CANCELLED})


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.UNKNOWN: {Event.ADD: State.SUBMITTED},
    State.SUBMITTED: {
        Event.ADD: State.SUBMITTED,
        Event.ACCEPT: State.ACCEPTED,
        Event.REFUSE: State.REFUSED,
    },
    State.REFUSED: {Event.ADD: State.SUBMITTED},
    State.ACCEPTED: {
        Event.REPEAT: State.ACCEPTED,
        Event.ANSWER: State.OK,
        Event.FAIL: State.ERROR,
        Event.EXPIRE: State.DEADLINE_EXCEEDED,
        Event.CANCEL: State.CANCELLED,
    },
    **{state: {Event.REPEAT: state} for state in sorted(TERMINAL, key=lambda s: s.value)},
}


MEANINGS: dict[State | Event, str] = {
    State.UNKNOWN: "the id was never used, or its tombstone has expired",
    State.SUBMITTED: "an entry in an ingress stream that no router has read; no guarantee yet",
    State.REFUSED: "has a short-lived error reply and no tombstone; the id may be used again",
    State.ACCEPTED: "open: a member of `due`; exactly one terminal item will follow",
    State.OK: "answered; the reply contains outputs",
    State.ERROR: "answered; the reply contains an error",
    State.DEADLINE_EXCEEDED: "answered; no worker finished in time",
    State.CANCELLED: "answered; the caller cancelled it",
    Event.ADD: "a caller adds an entry",
    Event.ACCEPT: "a router's `accept` opens the request",
    Event.REFUSE: "a router's `accept` writes a refusal",
    Event.REPEAT: "`accept` reads another entry with the id: it joins, nothing changes",
    Event.ANSWER: "`finish` by the worker that holds the entry, with outputs",
    Event.FAIL: "`finish` with an error of caller, model or fleet",
    Event.EXPIRE: "`finish` by the router that checks `due` for passed deadlines",
    Event.CANCEL: "`finish` on a caller's behalf",
}


def stored_state(deadline_ms: float | None, status: str | None, reply: bytes | None) -> State:
    """The state of a request, from its deadline in `due`, its tombstone and its reply key.

    Read them in this order, in which a request's states follow, so that none is missed in between.
    """
    if status is not None:
        return State(status)
    if deadline_ms is not None:
        return State.ACCEPTED
    return State.UNKNOWN if reply is None else State.REFUSED


class IllegalTransitionError(ValueError):
    """An event that cannot happen in that state; nothing has changed."""


def after(state: State, event: Event) -> State:
    """The state after `event`.

    Raises:
        IllegalTransitionError: the table has no such arrow.
    """
    following = TRANSITIONS[state].get(event)
    if following is None:
        raise IllegalTransitionError(
            f"{event.value} cannot happen to a request that is {state.value}"
        )
    return following
