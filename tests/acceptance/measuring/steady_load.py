"""So many requests a second from a real client, and what became of each."""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from random import Random
from threading import Thread
from time import perf_counter

from batchfleet.producer.async_client import AsyncClient
from batchfleet.producer.errors import WaitTimeoutError
from batchfleet.producer.result import Handle
from batchfleet.wire.errors import RequestError, ServerError

from .pause import pause

OK, NO_ANSWER, OPEN = "ok", "no answer", "open"
# What became of a request whose entry the server has not acknowledged.
GAVE_UP, REFUSED = "gave up sending", "refused by the server"
_SUBMIT_S = 1.0
_END_S = 300.0


@dataclass(slots=True)
class Sent:
    """One request. `handle`: the server has acknowledged its entry. Times are `perf_counter`'s."""

    sent_at: float
    handle: Handle | None = None
    outcome: str = OPEN
    over_at: float = 0.0
    attempt: int = 0
    version: str = ""
    outputs: object = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What to send.

    Attributes:
        timeout_ms: of each request.
        texts: sent in turn; `text` alone where there are none.
        burst: how many come at once, on average; the rate stays the same.
        patience_s: how long its caller waits for the answer.
    """

    model: str
    rate_per_s: float
    timeout_ms: int
    text: str = "hello"
    texts: tuple[str, ...] = ()
    burst: int = 1
    patience_s: float = 120.0
    result_ttl_ms: int = 300_000


@dataclass(eq=False)
class SteadyLoad:
    """Sends in a thread of its own while the measurement does what it does to the fleet.

    A caller whose entry is not acknowledged within a second gives up sending: an open loop that
    waited for the server would hit it with everything at once when it is back.
    """

    fleet: object
    plan: LoadPlan
    requests: list[Sent] = field(default_factory=list)

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._enough = asyncio.Event()
        self._failure = None
        self._thread = Thread(target=self._serve, name="steady load", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Send no more, and wait until every caller has an answer or lost patience."""
        if not self._loop.is_closed():
            with suppress(RuntimeError):  # it ended between the two calls
                self._loop.call_soon_threadsafe(self._enough.set)
        self._thread.join(_END_S)
        assert not self._thread.is_alive(), "the load does not end"
        if self._failure is not None:
            raise self._failure

    def _serve(self):
        try:
            self._loop.run_until_complete(self._send_all())
        except BaseException as error:  # noqa: BLE001 - raised by `stop`, in the thread that asked
            self._failure = error
        finally:
            self._loop.close()

    async def _send_all(self):
        fleet = self.fleet
        client = AsyncClient(fleet.url, namespace=fleet.namespace, tenant="default", keep=True)
        async with client, asyncio.TaskGroup() as group:
            next_at, chance = perf_counter(), Random(5)
            texts = cycle(self.plan.texts or (self.plan.text,))
            while not self._enough.is_set():
                size = chance.randint(1, 2 * self.plan.burst - 1)
                for text in islice(texts, size):
                    sent = Sent(perf_counter())
                    self.requests.append(sent)
                    group.create_task(self._send(client, sent, text))
                next_at += size / self.plan.rate_per_s
                await pause(next_at - perf_counter(), unless=self._enough)

    async def _send(self, client, sent, text):
        plan = self.plan
        try:
            async with asyncio.timeout(_SUBMIT_S):
                sent.handle = await client.submit(
                    plan.model,
                    text,
                    timeout_ms=plan.timeout_ms,
                    result_ttl_ms=plan.result_ttl_ms,
                )
            result = await client.result(sent.handle, plan.patience_s)
            sent.outcome, sent.attempt = OK, result.receipt["attempt"]
            sent.version, sent.outputs = result.version, result.outputs
        except TimeoutError:
            sent.outcome = GAVE_UP
        except WaitTimeoutError:
            sent.outcome = NO_ANSWER
        except RequestError as error:
            sent.outcome, sent.retry_after_ms = error.name, error.retry_after_ms
        except ServerError:
            sent.outcome = REFUSED if sent.handle is None else NO_ANSWER
        sent.over_at = perf_counter()

    def between(self, began, ended):
        """Requests sent between two times."""
        return [sent for sent in list(self.requests) if began <= sent.sent_at < ended]


def outcomes(requests):
    """How many became what, as one text."""
    kinds = Counter(sent.outcome for sent in requests)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


def acknowledged(requests):
    """Those whose entry the server said it has."""
    return [sent for sent in requests if sent.handle is not None]


def reply_counts(fleet, requests):
    """Number of terminal items → of how many acknowledged requests. The promise is one.

    Read from the reply keys, since a client may have missed what is there.
    """
    with fleet.server.pipeline(transaction=False) as pipe:
        for sent in (known := acknowledged(requests)):
            pipe.llen(fleet.keys(sent.handle.model).reply("default", sent.handle.id))
        counts = Counter(pipe.execute())
    assert sum(counts.values()) == len(known)
    return counts
