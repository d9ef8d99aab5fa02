"""Each script of the contract in a situation in which it has all of its work to do.

A scene makes the situation and returns the command, not yet run, so that a test may change what
lies on the server before it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import redis
from support.broker_wire import ANSWER, INPUTS, RECORD, REFUSAL, TENANT, TTL_MS, Wire

from batchfleet.broker import dead, fleet, ingress, later, listing, membership, moving, requests
from batchfleet.broker.commands import script
from batchfleet.broker.later import Promoted, Retried
from batchfleet.broker.moving import Moved, MoveItem
from batchfleet.broker.requests import Accepted, Finished
from batchfleet.testing.twin.executors import MemoryBroker
from batchfleet.testing.twin.streams import Stream
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.errors import ErrorKind
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request
from batchfleet.wire.stats import counts_of

ASKED_TTL_MS = 3_600_000
HOUR_MS = 3_600_000
BLOB = b"blob"
MODEL_ERROR = counts_of("1", ErrorKind.MODEL_ERROR)
SECOND = VersionRecord(version="2", limits=Limits(buckets=(16,)))
_SPARE_EDGE = 32

SOURCES = {
    path.name.removesuffix(".lua"): script(path.name.removesuffix(".lua")).source
    for path in (files("batchfleet.broker") / "lua").iterdir()
    if path.is_file()
}
"""Script → its Lua."""


def fresh_wire(wire: Wire, model: str) -> Wire:
    """Another model in the namespace of a test, just deployed."""
    keys = ModelKeys(wire.keys.namespace, model)
    streams = fleet.queue_streams(keys, RECORD)
    wire.run(fleet.deploy(keys, RECORD, streams, "n", [TENANT]))
    return Wire(wire.broker, wire.executor, keys)


# Requests.


def _accept(wire):
    wanted = {"a": {}, "b": {"delay_ms": HOUR_MS}, "c": {"refusal": REFUSAL}}
    items = [wire.item(name, wire.enter(name), **some) for name, some in wanted.items()]
    items[0] = items[0]._replace(result_ttl_ms=ASKED_TTL_MS)
    items[2] = items[2]._replace(counter="1:fleet")
    return requests.accept(wire.keys, wire.ingress, wire.stamp(), 100, items)


def _take(wire):
    wire.open("closed", "a", "b")
    late = ("id", "late", "tenant", TENANT, "deadline", "1", "inputs", INPUTS)  # and answered
    wire.ask("XADD", wire.queue(), "*", *late)
    wire.expire("closed")
    wire.join()
    wire.ask("DEL", wire.bell)
    streams = fleet.queue_streams(wire.keys, RECORD)
    return requests.take(wire.keys, "w1", wire.stamp(), RECORD, streams, 1)


def _finish(wire):
    wire.open("a", inputs_at="blob")
    wire.ask("SET", wire.keys.blob(TENANT, "a"), INPUTS, "PX", HOUR_MS)
    wire.open("b")
    wire.send("late", result_ttl_ms=ASKED_TTL_MS)
    wire.join()
    first, second = (work for work in wire.take() if work.id != "late")
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in (first, second)]
    given_up = ends[0]._replace(is_dead=True, has_blob=True, journal=b"{}", counts=MODEL_ERROR)
    answered = ends[1]._replace(
        outputs=BLOB, journal=b"{}", counts=counts_of("1", rows=1, device_us=1500)
    )
    return requests.finish(wire.keys, "w1", [given_up, answered])


def _expire(wire):
    wire.open("a", "b", delay_ms=HOUR_MS, result_ttl_ms=ASKED_TTL_MS)
    ends = [wire.end(name, ANSWER)._replace(journal=b"{}") for name in "ab"]
    return requests.finish(wire.keys, "", ends)


def _taken(wire, *names, **changes):
    wire.open(*names, **changes)
    wire.join()
    return wire.take()


def _retry(wire):
    (work,) = _taken(wire, "a", retries=2)
    return later.retry(wire.keys, "w1", work, wire.bell, HOUR_MS)


def _promote(wire):
    wire.open("a", "gone", "b", delay_ms=HOUR_MS)
    wire.be_ripe()
    items = wire.run(later.ripe(wire.keys, 10))
    wire.ask("XDEL", wire.keys.parked, items[1].parked_id)
    wire.expire("b")
    return later.promote(wire.keys, wire.stamp(), items)


def _moved(wire):
    wire.open("a", "gone", "b")
    wire.run(offer_second(wire))
    waiting = wire.run(moving.waiting(wire.queue()))
    wire.expire("gone")
    target, bell = wire.keys.queue("2", "normal", 16), wire.keys.bell("2")
    items = [MoveItem(entry.entry_id, target, bell) for entry in waiting]
    return moving.move(wire.keys, wire.stamp(), wire.queue(), items)


def _waiting(wire):
    wire.open("a", "b")
    wire.join()
    assert [work.id for work in wire.take(room=1)] == ["a"]
    return moving.waiting(wire.queue())


def _ripe(wire):
    wire.open("a", delay_ms=HOUR_MS)
    wire.be_ripe()
    return later.ripe(wire.keys, 10)


def _recover(wire):
    _taken(wire, "closed", "a")
    wire.expire("closed")
    wire.run(membership.leave(wire.keys, "w1"))
    wire.join("w2")
    return requests.recover(wire.keys, "w2", wire.stamp(), "w1", wire.queue(), 10)


def _overdue(wire):
    wire.open("a")
    wire.ask("ZADD", wire.keys.due, 1, f"{TENANT}:a")
    return requests.overdue(wire.keys, 10)


def _heads(wire):
    wire.open("a")
    return listing.heads(wire.queue(), "-", 10)


def _reread(wire):
    wire.enter("a")
    return ingress.reread(wire.ingress, "router-1", "0", 10)


def _replay(wire):
    letter = wire.ask("XADD", wire.keys.dead, "*", "id", "a", "inputs", INPUTS)
    fields = Request(id="a.r1", inputs=INPUTS).to_fields()
    return dead.replay(wire.keys, TENANT, letter, fields)


# Workers.


def _join(wire):
    return membership.join(wire.keys, "w1", TTL_MS, {"host": "h"})


def _beat(wire):
    wire.join()
    return membership.beat(wire.keys, "w1", TTL_MS, {"room": "1"})


def _inside(wire):
    wire.join()
    return membership.note_inside(wire.keys, "w1", [f"{TENANT}:a"])


def _inside_of_one_that_was_silent(wire):
    wire.join()
    wire.ask("DEL", wire.keys.worker("w1"))
    return membership.note_inside(wire.keys, "w1", [f"{TENANT}:a"])


def _leave(wire):
    wire.join()
    wire.run(membership.ring(wire.keys, "w1"))
    return membership.leave(wire.keys, "w1")


def _ring(wire):
    wire.join()
    return membership.ring(wire.keys, "w1")


def _bury(wire):
    wire.join()
    return membership.bury(wire.keys, "w1", 1.0)


def _retire(wire):
    _taken(wire)
    wire.run(membership.leave(wire.keys, "w1"))
    streams = fleet.queue_streams(wire.keys, RECORD)
    return membership.retire(wire.keys, "w1", streams)


def _prune(wire):
    wire.run(ingress.read([wire.ingress], "r1", 10, 0))
    return ingress.prune_readers(wire.keys, TENANT, -1)


# Deploy records.


def _deploy(wire):
    streams = fleet.queue_streams(wire.keys, SECOND)
    return fleet.deploy(wire.keys, SECOND, streams, "n2", [TENANT, "other"])


def offer_second(wire):
    return fleet.offer(wire.keys, SECOND, fleet.queue_streams(wire.keys, SECOND), "n2")


def _configure(wire):
    streams = fleet.queue_streams(wire.keys, RECORD)
    return fleet.configure(wire.keys, {"set:backlog": b"5"}, streams, "n2")


def _configure_if_unchanged(wire):
    return fleet.configure(wire.keys, {"canary": b"{}"}, [], "n2", wire.stamp())


def _withdraw_and_keep(wire):
    wire.run(offer_second(wire))
    return fleet.withdraw(wire.keys, "2", fleet.queue_streams(wire.keys, SECOND), keep=True)


def _withdraw(wire):
    wire.run(offer_second(wire))
    return fleet.withdraw(wire.keys, "2", fleet.queue_streams(wire.keys, SECOND))


def _remove_bucket(wire):
    draining = {"draining:1": f"[{_SPARE_EDGE}]".encode()}
    wire.run(fleet.configure(wire.keys, draining, [], "n2"))
    return fleet.remove_bucket(wire.keys, "1", _SPARE_EDGE)


def others_of(wire):
    """Keys that the deploy record of a model names."""
    return [*fleet.queue_streams(wire.keys, RECORD), wire.ingress, wire.bell]


def _undeploy(wire):
    return fleet.undeploy(wire.keys, others_of(wire), forced=False)


def _undeploy_by_force(wire):
    _finish(wire)
    return fleet.undeploy(wire.keys, others_of(wire), forced=True)


def _mend(wire):
    known = wire.run(fleet.deploy_hash(wire.keys))
    wire.ask("DEL", wire.keys.deploy, wire.keys.tenants, wire.ingress, wire.queue())
    streams = fleet.queue_streams(wire.keys, RECORD)
    return fleet.mend(wire.keys, known, [TENANT], streams, "mended")


@dataclass(frozen=True)
class Scene:
    """How a script is set up, and whether what it answers there is what it should."""

    prepare: Callable[[Wire], Any]
    is_right: Callable[[Any], bool]


def _is(wanted):
    return lambda found: found == wanted


_ANSWERED = [Finished.ANSWERED, Finished.ANSWERED]
SCENES = {
    "accept": Scene(_accept, _is((2, [Accepted.OK, Accepted.OK, Accepted.REFUSED]))),
    "take": Scene(_take, lambda found: [len(entries) for _, entries in found] == [1]),
    "finish": Scene(_finish, _is(_ANSWERED)),
    "finish without entries": Scene(_expire, _is(_ANSWERED)),
    "retry": Scene(_retry, _is(Retried.PARKED)),
    "promote": Scene(_promote, _is([Promoted.MOVED, Promoted.GONE, Promoted.CLOSED])),
    "move": Scene(_moved, _is([Moved.MOVED, Moved.GONE, Moved.MOVED])),
    "waiting": Scene(
        _waiting, lambda found: [item.inputs_bytes for item in found] == [len(INPUTS)]
    ),
    "ripe": Scene(_ripe, lambda found: [item.request_id for item in found] == ["a"]),
    "recover": Scene(_recover, lambda found: [item.attempt for item in found] == [1]),
    "overdue": Scene(_overdue, _is([f"{TENANT}:a".encode()])),
    "heads": Scene(_heads, lambda found: len(found) == 1),
    "reread": Scene(_reread, lambda found: [item.is_too_large for item in found] == [False]),
    "replay": Scene(_replay, lambda found: isinstance(found, bytes)),
    "join": Scene(_join, bool),
    "beat": Scene(_beat, _is(2)),
    "inside": Scene(_inside, bool),
    "inside after silence": Scene(_inside_of_one_that_was_silent, bool),
    "leave": Scene(_leave, bool),
    "ring": Scene(_ring, bool),
    "bury": Scene(_bury, bool),
    "retire": Scene(_retire, bool),
    "prune": Scene(_prune, lambda found: found in (0, 1)),  # a server before 7.2 knows no such one
    "deploy": Scene(_deploy, _is(2)),
    "configure": Scene(_configure, _is(2)),
    "configure if unchanged": Scene(_configure_if_unchanged, _is(2)),
    "withdraw": Scene(_withdraw, _is(0)),
    "withdraw and keep": Scene(_withdraw_and_keep, _is(0)),
    "remove_bucket": Scene(_remove_bucket, bool),
    "undeploy": Scene(_undeploy, _is((1, 0))),
    "undeploy by force": Scene(_undeploy_by_force, _is((1, 3))),
    "mend": Scene(_mend, _is(fleet.RESTORED)),
}


def keys_of(command):
    """The keys that a script is called with, each once."""
    count = command.parts[2]
    return list(dict.fromkeys(command.parts[3 : 3 + count]))


def contents(wire):
    """All that lies on the server of a model, to the last byte; and which keys have no end."""
    if isinstance(wire.broker, MemoryBroker):
        return _contents_of_twin(wire)
    with redis.Redis.from_url(wire.broker.url, socket_timeout=5, retry=None) as client:
        names = sorted(client.scan_iter(f"{wire.keys.prefix}*", count=1000))
        ends = {name for name in names if client.pttl(name) >= 0}
        return {name: _value_of(client, name) for name in names}, set(names) - ends


# DUMP will not do: a hash that was only read may lie in another order behind it.
_READS = {
    b"string": ("GET", "{}"),
    b"list": ("LRANGE", "{}", "0", "-1"),
    b"set": ("SMEMBERS", "{}"),
    b"hash": ("HGETALL", "{}"),
    b"zset": ("ZRANGE", "{}", "0", "-1", "WITHSCORES"),
    b"stream": ("XINFO", "STREAM", "{}", "FULL", "COUNT", "0"),
}


def _value_of(client, name):
    read = [name if part == "{}" else part for part in _READS[client.type(name)]]
    found = client.execute_command(*read)
    if isinstance(found, dict):
        return repr(sorted(found.items()))
    return repr(sorted(found) if isinstance(found, set) else found)


def _contents_of_twin(wire):
    database = wire.broker.server._database
    names = [name for name in sorted(database._slots) if name.startswith(wire.keys.prefix.encode())]
    there = [name for name in names if database.exists(name)]
    found = {name: _as_text(database._slots[name].value) for name in there}
    return found, {name for name in there if database.expires_ms(name) is None}


def _as_text(value):
    if isinstance(value, Stream):
        return repr(sorted(vars(value).items()))
    return repr(sorted(value) if isinstance(value, set) else value)
