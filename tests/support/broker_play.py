"""A player that carries out a random play of the contract's commands on a broker.

What differs between brokers for good reasons (entry ids, deadlines, idle times) is named by the
order of its coming, so that two players' records can be compared.
"""

from dataclasses import dataclass, field

from support.broker_steps import AHEAD, BODIES, HOUR_MS, IDS, OTHER, WORKERS
from support.broker_wire import ANSWER, BUCKETS, INPUTS, RECORD, TENANT, TTL_MS, Wire

from batchfleet.broker import dead, fleet, ingress, listing, membership, moving, requests
from batchfleet.broker.errors import RefusedError
from batchfleet.broker.moving import MoveItem
from batchfleet.wire.keys import PRIORITIES
from batchfleet.wire.request import Request
from batchfleet.wire.stats import counts_of
from batchfleet.wire.work import parse_work


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
    record: dict = field(default_factory=dict)  # the deploy hash before it was lost
    waiting: list = field(default_factory=list)  # (queue, entry id), as last listed

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
        """Of streams that are gone: recreated within a millisecond, they may use ids again."""
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
        return self.wire.run(ingress.read([self.wire.ingress], router, count, 0))

    def do_reread_ingress(self, router):
        return self.wire.run(ingress.reread(self.wire.ingress, router, "0", 10))

    def do_claim_ingress(self, router, idle_ms):
        return self.wire.run(ingress.claim(self.wire.ingress, router, idle_ms, 3)).entry_ids

    def do_drop_ingress(self, at):
        if not self.entries:
            return None
        entry_id = _pick(self.entries, at)[0]
        return self.wire.executor.run_all(ingress.drop(self.wire.ingress, [entry_id]))

    def do_delete_entry(self, at):
        if not self.entries:
            return None
        return self.wire.ask("XDEL", self.wire.ingress, _pick(self.entries, at)[0])

    def do_accept(self, items, backlog):
        if not self.entries:
            return None
        made = [self._item(item) for item in items]
        command = requests.accept(
            self.wire.keys, self.wire.ingress, self.wire.stamp(), backlog, made
        )
        return self.wire.run(command)

    def _item(self, wanted):
        entry_id, request_id, inputs = _pick(self.entries, wanted["entry"])
        entry_id = AHEAD if wanted["is_ahead"] else entry_id
        told = ("refusal", "rows", "bucket", "timeout_ms", "delay_ms", "retries")
        changes = {name: wanted[name] for name in told}
        item = self.wire.item(request_id, entry_id, inputs=inputs, **changes)
        if wanted["refusal"]:
            return item
        return item._replace(queue=self.wire.queue(wanted["bucket"], wanted["priority"]))

    def do_join(self, worker):
        return self.wire.run(membership.join(self.wire.keys, worker, TTL_MS, {"host": "h"}))

    def do_beat(self, worker):
        return self.wire.run(membership.beat(self.wire.keys, worker, TTL_MS, {"room": "1"}))

    def do_leave(self, worker):
        return self.wire.run(membership.leave(self.wire.keys, worker))

    def do_bury(self, worker):
        gone = self.wire.ask("ZREM", self.wire.keys.workers, worker)
        return gone and self.wire.ask("SADD", self.wire.keys.lost, worker)

    def do_vanish(self, worker):
        return self.wire.executor.run_all(membership.vanish(self.wire.keys, worker))

    def do_take(self, worker, room, buckets):
        streams = [
            self.wire.queue(bucket, priority) for priority in PRIORITIES for bucket in buckets
        ]
        stamp = self.wire.stamp()
        taken = self.wire.run(requests.take(self.wire.keys, worker, stamp, RECORD, streams, room))
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
        for at, is_known, journal, is_dead in ends:
            work = _pick(self.works, at)
            place = (work.stream, work.entry_id) if is_known else ()
            end = self.wire.end(work.id, ANSWER + worker.encode(), *place)
            end = end._replace(
                journal=journal, is_dead=is_dead, counts=counts_of("1", rows=at, device_us=at)
            )
            items.append(end)
        return [outcome.name for outcome in self.wire.finish(worker, *items)]

    def do_give_up(self, worker, item, is_replayed):
        """What a worker does with a request that failed too often."""
        return [
            self.do_admit(IDS[0], item, 100),
            self.do_serve(worker, 8),
            self.do_finish(worker, [(0, True, b"", True)]),
            self.do_list_letters(1),
            is_replayed and self.do_replay(0, IDS[2]),
        ]

    def do_fail(self, worker, item, is_short):
        """What a worker does with a request that may run again."""
        taken = [self.do_admit(IDS[1], item, 100), self.do_serve(worker, 8)]
        return [*taken, self.do_retry(worker, 0, is_short)]

    def do_retry(self, worker, at, is_short):
        if not self.works:
            return None
        work = _pick(self.works, at)
        return self.wire.retry(work, worker, 0 if is_short else HOUR_MS).name

    def do_promote(self, has_come, count):
        """What is parked, as if its time had come or as it is."""
        if has_come:
            self._even_times()
        return [(name, outcome.name) for name, outcome in self.wire.promote(count)]

    def do_list_waiting(self, bucket):
        """What a router may move; it is noted until it does."""
        queue = self.wire.queue(bucket)
        found = self.wire.run(moving.waiting(queue))
        self.waiting += [(queue, entry.entry_id) for entry in found]
        heads = self._fields(queue, [(entry.entry_id, entry.fields) for entry in found])
        return [heads, [entry.inputs_bytes for entry in found]]

    def do_move(self, bucket, other_bucket):
        """From one queue to another, by what was listed: some may be taken meanwhile."""
        queue, target = self.wire.queue(bucket), self.wire.queue(other_bucket)
        known = [entry_id for place, entry_id in self.waiting if place == queue]
        self.waiting = [pair for pair in self.waiting if pair[0] != queue]
        items = [MoveItem(entry_id, target, self.wire.bell) for entry_id in known]
        move = moving.move(self.wire.keys, self.wire.stamp(), queue, items)
        return [outcome.name for outcome in self.wire.run(move)]

    def do_pass_on(self, item, worker, room, is_late):
        """A router moves what it has listed, while a worker takes some of it, and some expires."""
        item = item | {"priority": "normal", "delay_ms": 0}
        return [
            self.do_admit(IDS[3], item, 100),
            self.do_list_waiting(item["bucket"]),
            self.do_serve(worker, room),
            is_late and self.do_expire(IDS[3]),
            self.do_move(item["bucket"], BUCKETS[0]),
        ]

    def _even_times(self):
        """Times that two servers agree on: by the order of coming."""
        known = self.wire.ask("XRANGE", self.wire.keys.parked, "-", "+")
        for at, (parked_id, _) in enumerate(known):
            self.wire.ask("ZADD", self.wire.keys.later, "XX", at + 1, parked_id)

    def do_lose_parked(self, at):
        known = self.wire.ask("XRANGE", self.wire.keys.parked, "-", "+")
        # Its time would stand in another place among the times of others.
        self._even_times()
        lost = known and self.wire.ask("XDEL", self.wire.keys.parked, _pick(known, at)[0])
        return [lost, self.do_promote(False, 4)]

    def do_uproot(self, worker, item, bucket):
        """A queue goes while requests are parked for it."""
        failed = self.do_fail(worker, item, False)
        return [failed, self.do_remove_queue(bucket), self.do_promote(True, 4)]

    def _letters(self):
        return self.wire.run(listing.latest_heads(self.wire.keys.dead, "+", 100))

    def do_replay(self, at, request_id):
        known = self._letters()
        entry_id = _pick(known, at)[0] if known else b"1-0"
        fields = Request(id=request_id, inputs=INPUTS).to_fields()
        added = self.wire.run(dead.replay(self.wire.keys, TENANT, entry_id, fields))
        if isinstance(added, bytes):
            self.entries.append((added, request_id, INPUTS))
            self._name(self.wire.ingress, added)
        return added

    def do_trim_letters(self, all_of_them):
        before_ms = 10**13 if all_of_them else 1
        return self.wire.run(dead.trim_letters(self.wire.keys, before_ms))

    def do_list_letters(self, count):
        found = self.wire.run(listing.latest_heads(self.wire.keys.dead, "+", count))
        return self._fields(self.wire.keys.dead, found)

    def do_spoil_letters(self, item):
        """Somebody else's value in place of letters, for as long as it takes to meet it."""
        if self._letters():
            return None
        taken = [self.do_admit(IDS[3], item, 100), self.do_serve(WORKERS[0], 8)]
        self.wire.ask("SADD", self.wire.keys.dead, "foreign")
        ended = self.do_finish(WORKERS[0], [(0, True, b"", True)])
        self.wire.ask("DEL", self.wire.keys.dead)
        return [*taken, ended]

    def do_list_queue(self, bucket, count):
        stream = self.wire.queue(bucket)
        heads = self._fields(stream, self.wire.run(listing.heads(stream, "-", count)))
        taken = self.wire.run(listing.taken(stream, "-", count))
        return [heads, [[self._name(stream, one[0]), *one[1:]] for one in taken]]

    def do_lose_record(self):
        known = self.wire.run(fleet.deploy_hash(self.wire.keys))
        self.record = known or self.record
        return self.wire.ask("DEL", self.wire.keys.deploy, self.wire.keys.tenants)

    def do_mend(self, is_known):
        known = self.wire.run(fleet.deploy_hash(self.wire.keys))
        if is_known or not known:
            known = self.record or known
        if not known:
            return None
        streams = fleet.queue_streams(self.wire.keys, RECORD)
        return self.wire.run(fleet.mend(self.wire.keys, known, [TENANT], streams, "mended"))

    def do_prune(self, idle_ms):
        """How many went is not told: a server before 7.2 knows no reader that found nothing."""
        self.wire.run(ingress.prune_readers(self.wire.keys, TENANT, idle_ms))

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
        (command,) = requests.forget_replies(self.wire.keys, TENANT, [request_id])
        return self.wire.run(command)

    def do_spoil_reply(self, request_id):
        return self.wire.ask("SADD", self.wire.reply_key(request_id), "foreign")

    def do_remove_queue(self, bucket):
        queues = [self.wire.queue(bucket, priority) for priority in PRIORITIES]
        self._forget_names(*queues)
        return self.wire.ask("DEL", *queues)

    def do_ring(self, worker):
        return self.wire.run(membership.ring(self.wire.keys, worker))

    def do_hear(self, worker):
        keys = self.wire.keys
        return [self.wire.ask("LPOP", bell) for bell in (keys.worker_bell(worker), self.wire.bell)]

    def do_deploy(self, tenants):
        names = [TENANT, OTHER][:tenants]
        streams = fleet.queue_streams(self.wire.keys, RECORD)
        return self.wire.run(fleet.deploy(self.wire.keys, RECORD, streams, "n", names))

    def do_configure(self, backlog):
        streams = fleet.queue_streams(self.wire.keys, RECORD)
        fields = {"set:backlog": backlog}
        return self.wire.run(fleet.configure(self.wire.keys, fields, streams, "n"))

    def do_undeploy(self, forced):
        keys = self.wire.keys
        others = [*fleet.queue_streams(keys, RECORD), self.wire.ingress, self.wire.bell]
        others += [keys.later, keys.parked]
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
            "stats": lambda: [
                (version, found.ok, found.fleet, found.rows, sum(found.latency))
                for version, found in sorted(self.wire.run(fleet.stats(keys)).items())
            ],
            "later": lambda: ask("ZCARD", keys.later),
            "parked": lambda: self._fields(keys.parked, ask("XRANGE", keys.parked, "-", "+")),
            "dead": lambda: self._fields(keys.dead, ask("XRANGE", keys.dead, "-", "+")),
        }
        for worker in WORKERS:
            announced = membership.announcement(keys, worker)
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
