"""The parts of the waiter's table: channels, the ids that they report, and who waits for each."""

import asyncio
from dataclasses import dataclass, field

from ..wire.keys import ModelKeys
from ..wire.reply import Reply


@dataclass(slots=True, eq=False)
class Channel:
    """A channel, and the awaited ids that it reports.

    A polled one is not subscribed to, since there are too many, or the user may not; the keys of
    its ids are read at intervals instead. A ready one is polled, or was confirmed by the server.
    """

    keys: ModelKeys
    name: str
    is_polled: bool
    is_ready: bool
    failure: BaseException | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    entries: dict[str, "AwaitedId"] = field(default_factory=dict)

    def confirm(self) -> None:
        """The server has confirmed it: no message is missed from now on."""
        self.is_ready = True
        self.settled.set()

    def poll(self) -> None:
        """It is not subscribed to any more."""
        self.is_polled = True
        self.confirm()

    def fail(self, error: BaseException) -> None:
        """It will not be confirmed."""
        self.is_ready = False
        self.failure = error
        self.settled.set()


@dataclass(slots=True, eq=False)
class AwaitedId:
    """One id that somebody waits for; it is in the table as long as it is open.

    Attributes:
        waits: of all its callers; it closes when the last one leaves.
        outcome: the reply, or why there is none.
        is_repeat: the id was there before perhaps, so that a refusal under the key may be an old
            one.
        misses: reads that found it finished but its reply gone.
        polls: how often its keys were read because no channel reports it.
    """

    channel: Channel
    request_id: str
    waits: set["Wait"] = field(default_factory=set)
    outcome: Reply | BaseException | None = None
    is_repeat: bool = False
    misses: int = 0
    polls: int = 0

    @property
    def is_open(self) -> bool:
        """Whether somebody waits and the outcome is unknown."""
        return self.outcome is None and bool(self.waits)


@dataclass(slots=True, eq=False)
class Wait:
    """One caller's place in the table: await `future`, then give the place back.

    `deadline` is in the loop's time. The future may be given an error that concerns this caller
    alone, not the entry; `Waiter.renew` then continues the entry.
    """

    entry: AwaitedId
    deadline: float
    future: "asyncio.Future[Reply]"

    def resolve(self, outcome: Reply | BaseException) -> None:
        """Hand over the outcome, unless the caller has gone."""
        if self.future.done():
            return
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)
