"""Random plays of the contract's commands, and a player that carries one out on a broker.

What differs between brokers for good reasons (entry ids, deadlines, idle times) is named by the
order of its coming, so that two players' records can be compared.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from support.broker_wire import ANSWER, BUCKETS, INPUTS, RECORD, REFUSAL, TENANT, TTL_MS, Wire

from batchfleet.broker import fleet, requests
from batchfleet.broker.errors import RefusedError
from batchfleet.wire import limits
from batchfleet.wire.keys import PRIORITIES
from batchfleet.wire.request import Request
from batchfleet.wire.work import parse_work

IDS = ("a", "b", "c", "d", "e", "f")
WORKERS = ("w1", "w2", "w3")
ROUTERS = ("r1", "r2")
BODIES = {"small": INPUTS, "large": b"x" * (limits.COPY_IN_SERVER_BYTES + 1)}
AHEAD = b"99999999999999-0"
HOUR_MS = 3_600_000

_ids = st.sampled_from(IDS)
_workers = st.sampled_from(WORKERS)
_routers = st.sampled_from(ROUTERS)
_index = st.integers(0, 7)
_buckets = st.sampled_from(BUCKETS)
_priorities = st.sampled_from(PRIORITIES)
_item = st.fixed_dictionaries(
    {
        "entry": _index,
        "bucket": _buckets,
        "priority": _priorities,
        "refusal": st.sampled_from((b"", b"", b"", REFUSAL)),
        "rows": st.sampled_from((None, 3, 500)),
        # Of no time at all: late, whatever the clock says.
        "timeout_ms": st.sampled_from((60_000, 60_000, 60_000, 0)),
        "is_ahead": st.sampled_from((False, False, False, False, True)),
    }
)
_end = st.tuples(_index, st.booleans(), st.sampled_from((b"", b"{}")))

# How often each step comes, and its arguments. What routers and workers do most of the time comes
# most often, so that the rest meets something.
_WEIGHED = (
    (12, "admit", _ids, _item, st.sampled_from((2, 100, 100))),
    (8, "serve", _workers, st.integers(1, 8)),
    (3, "submit", _ids, st.sampled_from(tuple(BODIES))),
    (2, "read_ingress", _routers, st.integers(1, 4)),
    (1, "reread_ingress", _routers),
    (1, "claim_ingress", _routers, st.sampled_from((0, HOUR_MS))),
    (1, "drop_ingress", _index),
    (2, "delete_entry", _index),
    (6, "accept", st.lists(_item, min_size=1, max_size=4), st.sampled_from((0, 3, 100, 100))),
    (1, "join", _workers),
    (1, "beat", _workers),
    (1, "leave", _workers),
    (1, "bury", _workers),
    (1, "vanish", _workers),
    (6, "take", _workers, st.integers(0, 8), st.permutations(BUCKETS)),
    (1, "reread_work", _workers, _buckets),
    (8, "finish", _workers, st.lists(_end, min_size=1, max_size=4)),
    (3, "expire", _ids),
    (3, "be_late", _ids),
    (2, "overdue", st.integers(1, 3)),
    (2, "look_up", _ids),
    (1, "forget_reply", _ids),
    (1, "spoil_reply", _ids),
    (2, "remove_queue", _buckets),
    (1, "ring", _workers),
    (5, "hear", _workers),
    (2, "deploy", st.sampled_from((1, 2))),
    (1, "configure", st.sampled_from((b"5", b""))),
    (1, "undeploy", st.booleans()),
)
_STEPS_OF = {name: st.tuples(st.just(name), *arguments) for _, name, *arguments in _WEIGHED}
_NAMES = [name for weight, name, *_ in _WEIGHED for _ in range(weight)]

STEPS = st.lists(st.sampled_from(_NAMES).flatmap(_STEPS_OF.get), min_size=10, max_size=60)


def _pick(known, at):
    """One of what there is, the latest first."""
    return known[-1 - at % len(known)]


@dataclass
class Player:
    """Carries out steps on one broker and records what comes back."""

    wire: Wire
    entries: list = field(default_factory=list)  # (entry id, request id), in order
    works: list = field(default_factory=list)
    names: dict = field(default_factory=dict)

    def play(self, step):
        """One step; its record, or the code of the error that it ended in."""
        name, *arguments = step
        try:
            return self._plain(getattr(self, f"do_{name}")(*arguments))
        except RefusedError as error:
            return error.code

    def _plain(self, value):
        """A reply with ids of ingress entries replaced by names."""
        if isinstance(value, bytes):
            return self.names.get((self.wire.ingress, value), value)
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        return value

    def _name(self, stream, entry_id):
        """Two streams may have an id in common, hence a name for each."""
        return self.names.setdefault((stream, entry_id), f"entry {len(self.names)}")

    def _forget_names(self, *streams):
        """Of streams that are gone: made anew within a millisecond, they may use ids again."""
        self.names = {place: name for place, name in self.names.items() if place[0] not in streams}

    def _fields(self, stream, entries):
        """Entries of a work stream without the deadline's value."""
        noted = []
        for entry_id, flat in entries:
            pairs = None if flat is None else dict(zip(flat[::2], flat[1::2], strict=True))
            if pairs is not None:
                pairs.pop(b"deadline", None)
            noted.append([self._name(stream, entry_id), pairs and sorted(pairs.items())])
        return noted

    def do_submit(self, request_id, size):
        inputs = BODIES[size]
        request = Request(id=request_id, inputs=inputs)
        entry_id = self.wire.run(requests.submit(self.wire.keys, TENANT, request))
        if entry_id is not None:
            self.entries.append((entry_id, request_id, inputs))
            self._name(self.wire.ingress, entry_id)
        return entry_id

    def do_admit(self, request_id, item, backlog):
        """What a router does with one request."""
        if self.do_submit(request_id, "small") is None:
            return None
        self.do_read_ingress("r1", 100)
        return self.do_accept([item | {"entry": 0}], backlog)

    def do_serve(self, worker, room):
        """What a worker does first of all."""
        return [self.do_join(worker), self.do_take(worker, room, BUCKETS)]

    def do_read_ingress(self, router, count):
        return self.wire.run(requests.read_ingress([self.wire.ingress], router, count, 0))

    def do_reread_ingress(self, router):
        return self.wire.run(requests.reread_ingress(self.wire.ingress, router, "0", 10))

    def do_claim_ingress(self, router, idle_ms):
        return self.wire.run(requests.claim_ingress(self.wire.ingress, router, idle_ms, 3))

    def do_drop_ingress(self, at):
        if not self.entries:
            return None
        entry_id = _pick(self.entries, at)[0]
        return self.wire.executor.run_all(requests.drop_ingress(self.wire.ingress, [entry_id]))

    def do_delete_entry(self, at):
        if not self.entries:
            return None
        return self.wire.ask("XDEL", self.wire.ingress, _pick(self.entries, at)[0])

    def do_accept(self, items, backlog):
        if not self.entries:
            return None
        made = [self._item(item) for item in items]
        command = requests.accept(self.wire.keys, self.wire.ingress, backlog, made)
        return self.wire.run(command)

    def _item(self, wanted):
        entry_id, request_id, inputs = _pick(self.entries, wanted["entry"])
        entry_id = AHEAD if wanted["is_ahead"] else entry_id
        changes = {name: wanted[name] for name in ("refusal", "rows", "bucket", "timeout_ms")}
        item = self.wire.item(request_id, entry_id, inputs=inputs, **changes)
        if wanted["refusal"]:
            return item
        return item._replace(queue=self.wire.queue(wanted["bucket"], wanted["priority"]))

    def do_join(self, worker):
        return self.wire.run(fleet.join(self.wire.keys, worker, TTL_MS, {"host": "h"}))

    def do_beat(self, worker):
        return self.wire.run(fleet.beat(self.wire.keys, worker, TTL_MS, {"room": "1"}))

    def do_leave(self, worker):
        return self.wire.run(fleet.leave(self.wire.keys, worker))

    def do_bury(self, worker):
        gone = self.wire.ask("ZREM", self.wire.keys.workers, worker)
        return gone and self.wire.ask("SADD", self.wire.keys.lost, worker)

    def do_vanish(self, worker):
        return self.wire.executor.run_all(fleet.vanish(self.wire.keys, worker))

    def do_take(self, worker, room, buckets):
        streams = [
            self.wire.queue(bucket, priority) for priority in PRIORITIES for bucket in buckets
        ]
        taken = self.wire.run(requests.take(self.wire.keys, worker, RECORD, streams, room))
        for stream, entries in taken:
            self.works += [parse_work(stream, entry_id, flat) for entry_id, flat in entries]
        return [[stream, self._fields(stream, entries)] for stream, entries in taken]

    def do_reread_work(self, worker, bucket):
        stream = self.wire.queue(bucket)
        return self._fields(stream, self.wire.run(requests.reread_work(stream, worker, "0", 10)))

    def do_finish(self, worker, ends):
        if not self.works:
            return None
        items = []
        for at, is_known, journal in ends:
            work = _pick(self.works, at)
            place = (work.stream, work.entry_id) if is_known else ()
            end = self.wire.end(work.id, ANSWER + worker.encode(), *place)
            items.append(end._replace(journal=journal))
        return [outcome.name for outcome in self.wire.finish(worker, *items)]

    def do_expire(self, request_id):
        return self.wire.expire(request_id).name

    def do_be_late(self, request_id):
        due = self.wire.keys.due
        self.wire.ask("ZADD", due, "XX", IDS.index(request_id), f"{TENANT}:{request_id}")
        return self.do_overdue(3)

    def do_overdue(self, count):
        return self.wire.run(requests.overdue(self.wire.keys, count))

    def do_look_up(self, request_id):
        keys = self.wire.keys
        return [
            self.wire.run(requests.open_requests(keys)),
            self.wire.run(requests.deadline(keys, TENANT, request_id)) is None,
            self.wire.run(requests.tombstone(keys, TENANT, request_id)),
            self.wire.run(requests.reply(keys, TENANT, request_id)),
        ]

    def do_forget_reply(self, request_id):
        return self.wire.run(requests.forget_replies(self.wire.keys, TENANT, [request_id]))

    def do_spoil_reply(self, request_id):
        return self.wire.ask("SADD", self.wire.reply_key(request_id), "foreign")

    def do_remove_queue(self, bucket):
        queues = [self.wire.queue(bucket, priority) for priority in PRIORITIES]
        self._forget_names(*queues)
        return self.wire.ask("DEL", *queues)

    def do_ring(self, worker):
        return self.wire.run(fleet.ring_worker(self.wire.keys, worker))

    def do_hear(self, worker):
        keys = self.wire.keys
        return [self.wire.ask("LPOP", bell) for bell in (keys.worker_bell(worker), self.wire.bell)]

    def do_deploy(self, tenants):
        names = [TENANT, "other"][:tenants]
        streams = fleet.queue_streams(self.wire.keys, RECORD)
        return self.wire.run(fleet.deploy(self.wire.keys, RECORD, streams, "n", names))

    def do_configure(self, backlog):
        streams = fleet.queue_streams(self.wire.keys, RECORD)
        fields = {"set:backlog": backlog}
        return self.wire.run(fleet.configure(self.wire.keys, fields, streams, "n"))

    def do_undeploy(self, forced):
        keys = self.wire.keys
        others = [*fleet.queue_streams(keys, RECORD), self.wire.ingress, self.wire.bell]
        removed, count = self.wire.run(fleet.undeploy(keys, others, forced=forced))
        if removed:
            self._forget_names(*others)
        return removed, count

    def remains(self):
        """All that lies on the broker in the end."""
        return {name: self._plain(self._rest(read)) for name, read in self._reads().items()}

    def _rest(self, read):
        try:
            return read()
        except RefusedError as error:
            return error.code

    def _reads(self):
        """Name → how to read it, for all that may lie on the broker."""
        keys, ask = self.wire.keys, self.wire.ask
        found = {
            # Deadlines of one millisecond on one server may lie apart on the other.
            "due": lambda: sorted(ask("ZRANGE", keys.due, 0, -1)),
            "workers": lambda: ask("ZRANGE", keys.workers, 0, -1),
            "lost": lambda: sorted(ask("SMEMBERS", keys.lost)),
            "tenants": lambda: sorted(ask("SMEMBERS", keys.tenants)),
            "deploy": lambda: sorted(self.wire.run(fleet.deploy_hash(keys)).items()),
            "bell": lambda: ask("LRANGE", self.wire.bell, 0, -1),
            "journal": lambda: ask("XLEN", keys.journal),
        }
        for worker in WORKERS:
            announced = fleet.announcement(keys, worker)
            found[worker] = lambda announced=announced: sorted(self.wire.run(announced).items())
        for request_id in IDS:
            found[request_id] = lambda it=request_id: self.do_look_up(it)
            found[f"{request_id} lives"] = lambda it=request_id: self._lives(it)
        queues = [self.wire.queue(bucket, level) for bucket in BUCKETS for level in PRIORITIES]
        for stream, group in [(self.wire.ingress, "router"), *((q, "worker") for q in queues)]:
            found[stream] = lambda stream=stream: self._fields(
                stream, ask("XRANGE", stream, "-", "+")
            )
            found[f"{stream} pending"] = lambda stream=stream, group=group: [
                [self._name(stream, entry_id), consumer, times]
                for entry_id, consumer, _, times in ask("XPENDING", stream, group, "-", "+", 100)
            ]
        return found

    def _lives(self, request_id):
        """Whether reply and tombstone are there, and have an end."""
        keys = (self.wire.reply_key(request_id), self.wire.tombstone(request_id))
        ends = [self.wire.ask("PTTL", key) for key in keys]
        return [min(end, 1) for end in ends]
