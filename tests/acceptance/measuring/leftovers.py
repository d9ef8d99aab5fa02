"""What a hundred thousand requests leave behind in the server once their lives are over: nothing.

The journal is at its cap beforehand, so that it does not grow; none of these requests goes to the
dead letters. Replies are kept by their callers, so that only their TTL removes them.
"""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from batchfleet.producer.async_client import AsyncClient
from batchfleet.wire.limits import JOURNAL_LINES_MAX, RESEND_WINDOW_MS
from benchmarks.bursts import Load
from benchmarks.load import run_burst
from tests.support.fleet import draft_of, until

from .mortal_server import NAMESPACE, mortal_server, served_fleet
from .pause import pause_s
from .promise import Promise, equals

MODEL = "many"
_HALF, _HALF_QUICK = 50_000, 2_000
_CALLERS = 256
_RESULT_TTL_MS, _TIMEOUT_MS = 2_000, 3_000
# A tombstone outlives its reply by the time-out and the time within which a caller may repeat.
_TOMBSTONE_S = (_RESULT_TTL_MS + _TIMEOUT_MS + RESEND_WINDOW_MS) / 1000
_SPARE_S = 1.0
_PATIENCE_S = 60.0
_FORGOTTEN_S = 75.0
_GROWTH, _GROWTH_BYTES = 0.05, 1024 * 1024
# About what `finish` writes.
_LINE = b"x" * 230
_PIPELINE = 10_000
_PROTOCOL = Path(__file__).parents[3] / "docs" / "protocol.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One half of the requests.

    Attributes:
        answered: how many got an answer.
        replies: reply keys that were left a second after their TTL.
        dataset_bytes: `used_memory_dataset` once the tombstones were gone as well.
    """

    answered: int
    replies: int
    dataset_bytes: int


def leftovers(*, quick):
    """Two halves; between them both workers and the router are replaced, one worker by SIGKILL."""
    count = _HALF_QUICK if quick else _HALF
    with mortal_server() as server, served_fleet(server, draft_of("noop", MODEL)) as fleet:
        _fill_journal(fleet)
        first = _half(fleet, count)
        _replace_programs(fleet)
        second = _half(fleet, count)
        return [
            equals(f"2 × {count} requests: answered", first.answered + second.answered, 2 * count),
            equals(
                f"… replies left {_SPARE_S:g} s after their TTL", first.replies + second.replies, 0
            ),
            *_lengths(fleet),
            _growth(first.dataset_bytes, second.dataset_bytes),
            _keys_without_ttl(fleet),
            _work_consumers(fleet),
            *([] if quick else [_ingress_consumers(fleet)]),
        ]


def _fill_journal(fleet):
    journal = fleet.keys(MODEL).journal
    for _ in range(0, JOURNAL_LINES_MAX + _PIPELINE, _PIPELINE):
        with fleet.server.pipeline(transaction=False) as pipe:
            for _ in range(_PIPELINE):
                pipe.xadd(journal, {"line": _LINE}, maxlen=JOURNAL_LINES_MAX, approximate=True)
            pipe.execute()
    assert fleet.server.xlen(journal) >= JOURNAL_LINES_MAX


def _half(fleet, count):
    answered = asyncio.run(_ask(fleet, count))
    pause_s(_RESULT_TTL_MS / 1000 + _SPARE_S)
    replies = sum(1 for _ in fleet.server.scan_iter("*:re:*", count=10_000))
    # What is left with a TTL are the announcements of the living, and the list of routers.
    living = len(fleet.lanes(MODEL)) + len(fleet.routers) + 1
    until(
        lambda: fleet.server.info("keyspace")["db0"]["expires"] <= living,
        "replies and tombstones have expired",
        _TOMBSTONE_S + _PATIENCE_S,
    )
    dataset = fleet.server.info("memory")["used_memory_dataset"]
    return Half(answered=answered, replies=replies, dataset_bytes=dataset)


async def _ask(fleet, count):
    """Send so many in a closed loop; returns how many were answered."""
    defaults = {"timeout_ms": _TIMEOUT_MS, "result_ttl_ms": _RESULT_TTL_MS}
    target = {"namespace": fleet.namespace, "tenant": "default", "defaults": defaults}
    async with AsyncClient(fleet.url, keep=True, **target) as client:
        load = Load(requests=count, callers=_CALLERS)
        return (await run_burst(lambda: client.infer(MODEL, "hello"), load))["requests"]


def _replace_programs(fleet):
    """A worker that leaves, one that is killed, a router that leaves, and who comes for them."""
    leaving, killed = fleet.workers
    (router,) = fleet.routers
    fleet.bring_up(workers=2, ready_s=_PATIENCE_S)
    leaving.stop()
    killed.kill()
    router.stop()
    names = {worker.facts["worker"] for worker in fleet.workers}
    until(lambda: set(fleet.lanes(MODEL)) == names, "the killed one is buried", _PATIENCE_S)
    lost = fleet.keys(MODEL).lost
    until(lambda: not fleet.server.exists(lost), "nothing is left of it", _PATIENCE_S)


def _lengths(fleet):
    """Entries in streams that hold requests, and open requests."""
    keys = fleet.keys(MODEL)
    streams = {name.decode() for name in fleet.server.scan_iter(count=10_000, _type="stream")}
    left = sum(map(fleet.server.xlen, streams - {keys.journal}))
    return [
        equals("… entries in work, session and ingress streams", left, 0),
        equals("… members of due", fleet.server.zcard(keys.due), 0),
    ]


def _growth(first, second):
    most = max((1 + _GROWTH) * first, first + _GROWTH_BYTES)
    return Promise(
        promise=f"… used_memory_dataset after the second half (after the first: {first} bytes)",
        bound=f"≤ {most:.0f}",
        figure=second,
        holds=second <= most,
    )


def _keys_without_ttl(fleet):
    """Those that docs/protocol.md does not list, in the whole server."""
    names = [name.decode() for name in fleet.server.scan_iter(count=10_000)]
    with fleet.server.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.pttl(name)
        lasting = [n for n, ttl in zip(names, pipe.execute(), strict=True) if ttl == -1]
    allowed = re.compile("|".join(map(_pattern, _listed_without_ttl())))
    foreign = [name for name in lasting if not allowed.fullmatch(name)]
    return Promise(
        promise=f"… of {len(lasting)} keys without a TTL, not in the list of docs/protocol.md",
        bound="= 0",
        figure=", ".join(foreign[:3]) or 0.0,
        holds=not foreign and len(lasting) > 0,
    )


def _listed_without_ttl():
    (listed,) = re.findall(
        r"^These keys have no TTL: (.+?)\. ", _PROTOCOL.read_text(), re.MULTILINE | re.DOTALL
    )
    return re.findall("`(.+?)`", listed)


def _pattern(name):
    """`ns:{m}:in:<tenant>` as a pattern for the names of keys."""
    name = re.escape(name.replace("ns:", f"{NAMESPACE}:", 1)).replace(r"\{m\}", rf"\{{{MODEL}\}}")
    return re.sub("<.+?>", "[^:]+", name)


def _work_consumers(fleet):
    found = {
        consumer["name"].decode()
        for stream in fleet.queues(MODEL)
        for consumer in fleet.server.xinfo_consumers(stream, "worker")
    }
    living = " ".join(sorted(fleet.lanes(MODEL)))
    named = " ".join(sorted(found))
    return equals("… consumers of the work groups are the living workers", named, living)


def _ingress_consumers(fleet):
    """A router that is silent may be back: others forget it after a minute only."""
    stream, over = fleet.keys(MODEL).ingress("default"), perf_counter() + _FORGOTTEN_S

    def count():
        return len(fleet.server.xinfo_consumers(stream, "router"))

    until(lambda: count() == 1 or perf_counter() > over, "a minute has passed", 2 * _FORGOTTEN_S)
    return equals("… consumers of the ingress group, one router living", count(), 1)
