"""The scripts' promises, one interleaving a test, on every kind of server that the fleet runs on.

On the cluster node a script that touches an undeclared key, or keys of two slots, fails.
"""

import itertools
import secrets
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import redis
from support.fleet import until
from support.server import delete_namespace

from batchfleet.broker import fleet, requests
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.broker.embedded import EmbeddedServer, ServerOptions, find_server, free_port
from batchfleet.broker.errors import FencedError, OutOfMemoryError
from batchfleet.broker.requests import Accepted, AcceptItem, Finished, FinishItem
from batchfleet.service.lifecycle import spawn
from batchfleet.wire import limits
from batchfleet.wire.deployment import Limits, VersionRecord
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request
from batchfleet.wire.work import parse_work, work_fields

TENANT = "default"
BUCKETS = (16, 32, 64)
RECORD = VersionRecord(version="1", limits=Limits(buckets=BUCKETS, max_batch_size=8))
TTL_MS = 60_000
INPUTS = b'{"text": ["hello"]}'
ANSWER, EXPIRED, REFUSAL = b"answer", b"expired", b"refusal"
KINDS = ("session", "redis7", "cluster")


@contextmanager
def cluster_node(folder):
    """One server in cluster mode that owns every slot."""
    port = free_port()
    command = [
        find_server(),
        *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
        *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
        *("--cluster-config-file", str(folder / "nodes.conf")),
    ]
    with (folder / "server.log").open("wb") as log:
        process = spawn(command, stdout=log, stderr=subprocess.STDOUT)
    url = f"redis://127.0.0.1:{port}/0"
    try:
        with redis.Redis.from_url(url, socket_timeout=5, retry=None) as client:
            until(lambda: _answers(client), "the cluster node answers")
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            until(lambda: _is_whole(client), "the cluster is whole")
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _answers(client):
    try:
        return client.ping()
    except redis.ConnectionError:
        return False


def _is_whole(client):
    # The library returns a mapping for a server in cluster mode.
    return client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"


@contextmanager
def redis7():
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on the PATH")
    server = EmbeddedServer(ServerOptions(program=program))
    server.start()
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module", params=KINDS)
def server_url(request, redis_server, tmp_path_factory):
    if request.param == "session":
        yield redis_server.url
    elif request.param == "redis7":
        with redis7() as url:
            yield url
    else:
        with cluster_node(tmp_path_factory.mktemp("cluster")) as url:
            yield url


@dataclass
class Wire:
    """The scripts in the hands of a test: what routers and workers do, one step at a time."""

    executor: BlockingExecutor
    server: redis.Redis
    keys: ModelKeys

    def run(self, command):
        return self.executor.run(command)

    def queue(self, bucket=16, priority="normal"):
        return self.keys.queue("1", priority, bucket)

    @property
    def bell(self):
        return self.keys.bell("1")

    @property
    def ingress(self):
        return self.keys.ingress(TENANT)

    def now_ms(self):
        return int(self.run(fleet.server_time()))

    def enter(self, request_id, inputs=INPUTS, entry_id="*"):
        """Add an ingress entry and have a router read it; returns its id."""
        added = self.server.xadd(self.ingress, {"id": request_id, "inputs": inputs}, id=entry_id)
        self.run(requests.read_ingress([self.ingress], "router-1", 100, 0))
        return added

    def item(self, request_id, entry_id, **changes):
        values = {"timeout_ms": 60_000, "bucket": 16, "refusal": b"", "inputs": INPUTS, "rows": None}
        values |= changes
        request = Request(id=request_id, inputs=values["inputs"], rows=values["rows"])
        refused = bool(values["refusal"])
        return AcceptItem(
            entry_id=entry_id,
            tenant=TENANT,
            request_id=request_id,
            timeout_ms=values["timeout_ms"],
            queue="" if refused else self.queue(values["bucket"]),
            bell="" if refused else self.bell,
            fields=() if refused else work_fields(request, TENANT),
            inputs=b"" if refused else request.inputs,
            refusal=values["refusal"],
        )

    def accept(self, *items, backlog=100):
        return self.run(requests.accept(self.keys, self.ingress, backlog, items))[1]

    def send(self, request_id, backlog=100, **changes):
        """Enter and accept one request; returns the outcome."""
        entry_id = self.enter(request_id, changes.get("inputs", INPUTS))
        return self.accept(self.item(request_id, entry_id, **changes), backlog=backlog)[0]

    def open(self, *request_ids, **changes):
        for request_id in request_ids:
            assert self.send(request_id, **changes) is Accepted.OK

    def join(self, worker="w1"):
        assert self.run(fleet.join(self.keys, worker, TTL_MS, {}))
        return worker

    def take(self, worker="w1", room=100, streams=None):
        """Take; returns work entries in the order given."""
        wanted = streams or fleet.queue_streams(self.keys, RECORD)
        taken = self.run(requests.take(self.keys, worker, RECORD, wanted, room))
        return [parse_work(stream, entry, flat) for stream, some in taken for entry, flat in some]

    def finish(self, worker, *items):
        return self.run(requests.finish(self.keys, worker, items))

    def settle(self, work, reply=ANSWER, worker="w1"):
        """Finish a request whose entry the worker holds."""
        return self.finish(worker, self.end(work.id, reply, work.stream, work.entry_id))[0]

    def expire(self, request_id):
        """Finish a request of which no entry is known, as a sweeper does."""
        return self.finish("", self.end(request_id, EXPIRED))[0]

    def end(self, request_id, reply, stream="", entry_id=b""):
        return FinishItem(
            stream=stream,
            entry_id=entry_id,
            tenant=TENANT,
            request_id=request_id,
            reply=reply,
            status="ok",
            result_ttl_ms=TTL_MS,
            tombstone_ttl_ms=2 * TTL_MS,
        )

    def reply_key(self, request_id):
        return self.keys.reply(TENANT, request_id)

    def tombstone(self, request_id):
        return self.keys.tombstone(TENANT, request_id)

    def replies(self, request_id):
        return self.server.lrange(self.reply_key(request_id), 0, -1)

    def pending(self, stream):
        return self.server.xpending(stream, "worker")["pending"]

    def ingress_left(self):
        """Entries in ingress, and those that a router has read and not ended."""
        return (
            self.server.xlen(self.ingress),
            self.server.xpending(self.ingress, "router")["pending"],
        )


@contextmanager
def wired(url, namespace):
    """A deployed model on a server, without any program."""
    keys = ModelKeys(namespace, "m")
    with (
        BlockingExecutor(url, "test") as executor,
        redis.Redis.from_url(url, socket_timeout=10, retry=None) as server,
    ):
        streams = fleet.queue_streams(keys, RECORD)
        executor.run(fleet.deploy(keys, RECORD, streams, "n", [TENANT]))
        yield Wire(executor, server, keys)


@pytest.fixture
def wire(server_url):
    namespace = f"t{secrets.token_hex(6)}"
    with wired(server_url, namespace) as found:
        yield found
    delete_namespace(server_url, namespace)


# One answer, whoever comes when.


def test_a_late_copy_joins_the_finished_request(wire):
    first, second = wire.enter("a"), wire.enter("a")
    assert wire.accept(wire.item("a", first)) == [Accepted.OK]
    wire.join()
    (work,) = wire.take()
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.accept(wire.item("a", second)) == [Accepted.DUP]
    assert wire.replies("a") == [ANSWER]
    assert wire.take() == []
    assert wire.ingress_left() == (0, 0)


def test_copies_in_one_call_and_in_two_run_once(wire):
    entries = [wire.enter("a") for _ in range(3)]
    items = [wire.item("a", entry) for entry in entries]
    assert wire.accept(*items[:2]) == [Accepted.OK, Accepted.DUP]
    assert wire.accept(items[2]) == [Accepted.DUP]
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]
    assert wire.ingress_left() == (0, 0)


def test_an_invalid_entry_with_the_id_of_an_open_request_writes_nothing(wire):
    wire.open("a")
    entry = wire.enter("a")
    assert wire.accept(wire.item("a", entry, refusal=REFUSAL)) == [Accepted.DUP]
    assert wire.replies("a") == []
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.replies("a") == [ANSWER]
    assert wire.send("a", refusal=REFUSAL) is Accepted.DUP
    assert wire.replies("a") == [ANSWER]


def test_a_refused_id_may_be_sent_again_and_its_refusal_goes(wire):
    assert wire.send("a", refusal=REFUSAL) is Accepted.REFUSED
    assert wire.send("a", refusal=b"again") is Accepted.REFUSED
    assert wire.replies("a") == [b"again"]
    wire.open("a")
    assert wire.replies("a") == []
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.replies("a") == [ANSWER]


def test_an_expired_request_is_not_answered_by_its_worker(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    assert wire.expire("a") is Finished.ANSWERED
    assert wire.settle(work) is Finished.CLOSED
    assert wire.replies("a") == [EXPIRED]
    assert wire.server.xlen(work.stream) == 0
    assert wire.pending(work.stream) == 0


def test_an_answered_request_does_not_expire(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.expire("a") is Finished.CLOSED
    assert wire.settle(work) is Finished.NOT_MINE
    assert wire.replies("a") == [ANSWER]


def test_the_moved_twin_of_an_expired_request_writes_nothing(wire):
    """A sweeper acts on an entry that has moved: the twin's settling comes second."""
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    twin = wire.server.xadd(work.stream, {"id": "a", "tenant": TENANT, "inputs": "x"})
    wire.server.xack(work.stream, "worker", work.entry_id)
    wire.server.xdel(work.stream, work.entry_id)
    wire.server.xreadgroup("worker", "w1", {work.stream: ">"})
    assert wire.expire("a") is Finished.ANSWERED
    assert wire.finish("w1", wire.end("a", ANSWER, work.stream, twin)) == [Finished.CLOSED]
    assert wire.replies("a") == [EXPIRED]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_one_terminal_item_whatever_comes_first(wire, order):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    steps = [
        lambda: wire.settle(work),
        lambda: wire.expire("a"),
        lambda: wire.send("a"),
        lambda: wire.send("a", refusal=REFUSAL),
    ]
    for at in order:
        steps[at]()
    first = min(order.index(0), order.index(1))
    assert wire.replies("a") == [ANSWER if order[first] == 0 else EXPIRED]
    assert wire.server.zcard(wire.keys.due) == 0
    assert wire.take() == []
    assert wire.server.xlen(wire.queue()) == 0
    assert wire.ingress_left() == (0, 0)


# Who may take and settle.


def test_take_is_refused_for_a_worker_that_was_buried(wire):
    wire.join()
    wire.open("a")
    wire.server.zrem(wire.keys.workers, "w1")
    wire.server.sadd(wire.keys.lost, "w1")
    with pytest.raises(FencedError):
        wire.take()
    assert wire.pending(wire.queue()) == 0
    assert wire.run(fleet.beat(wire.keys, "w1", TTL_MS, {})) == 0
    assert not wire.run(fleet.join(wire.keys, "w1", TTL_MS, {}))


def test_take_is_refused_for_a_worker_that_left(wire):
    wire.join()
    assert wire.run(fleet.leave(wire.keys, "w1"))
    assert not wire.run(fleet.leave(wire.keys, "w1"))
    with pytest.raises(FencedError):
        wire.take()
    assert wire.server.smembers(wire.keys.lost) == {b"w1"}


def test_only_the_holder_of_an_entry_settles_it(wire):
    wire.open("a")
    wire.join("w1")
    (work,) = wire.take("w1")
    assert wire.settle(work, worker="w2") is Finished.NOT_MINE
    assert wire.replies("a") == []
    assert wire.settle(work, worker="w1") is Finished.ANSWERED


def test_a_reply_key_of_the_wrong_type_spoils_nothing(wire):
    wire.open("a", "b", "c")
    wire.join()
    works = wire.take()
    wire.server.xadd(wire.reply_key("b"), {"not": "ours"})
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in works]
    assert wire.finish("w1", *ends) == [Finished.ANSWERED] * 3
    assert [wire.replies(name) for name in "abc"] == [[ANSWER]] * 3
    assert wire.server.pttl(wire.reply_key("b")) > 0
    assert wire.pending(wire.queue()) == 0


def test_a_stream_that_is_gone_spoils_only_its_own_items(wire):
    wire.open("a", "b", bucket=16)
    wire.open("c", bucket=32)
    wire.join()
    works = wire.take()
    wire.server.delete(wire.queue(32))
    ends = [wire.end(work.id, ANSWER, work.stream, work.entry_id) for work in works]
    outcomes = dict(zip((work.id for work in works), wire.finish("w1", *ends), strict=True))
    assert outcomes == {
        "a": Finished.ANSWERED,
        "b": Finished.ANSWERED,
        "c": Finished.NOT_MINE,
    }
    assert wire.expire("c") is Finished.ANSWERED


# Accepting.


def test_a_removed_work_stream_is_not_made_again(wire):
    wire.server.delete(wire.queue())
    entry = wire.enter("a")
    assert wire.accept(wire.item("a", entry)) == [Accepted.STALE]
    assert not wire.server.exists(wire.queue())
    assert wire.server.zcard(wire.keys.due) == 0
    assert wire.ingress_left() == (1, 1)
    assert wire.accept(wire.item("a", entry, bucket=32)) == [Accepted.OK]


def test_an_entry_from_the_future_is_told_and_kept(wire):
    ahead = wire.now_ms() + requests.CLOCK_TOLERANCE_MS + 60_000
    entry = wire.enter("a", entry_id=f"{ahead}-0")
    assert wire.accept(wire.item("a", entry)) == [Accepted.CLOCK]
    assert wire.ingress_left() == (1, 1)
    assert wire.accept(wire.item("a", entry, refusal=REFUSAL)) == [Accepted.REFUSED]
    assert wire.replies("a") == [REFUSAL]


def test_an_entry_a_little_ahead_gets_its_deadline_from_the_servers_clock(wire):
    ahead = wire.now_ms() + requests.CLOCK_TOLERANCE_MS // 2
    entry = wire.enter("a", entry_id=f"{ahead}-0")
    assert wire.accept(wire.item("a", entry, timeout_ms=60_000)) == [Accepted.OK]
    deadline = wire.run(requests.deadline(wire.keys, TENANT, "a"))
    assert deadline <= wire.now_ms() + 60_000 < ahead + 60_000


def test_the_deadline_counts_from_the_entry_not_from_acceptance(wire):
    long_ago = wire.now_ms() - 10_000
    entry = wire.enter("a", entry_id=f"{long_ago}-0")
    assert wire.accept(wire.item("a", entry, timeout_ms=30_000)) == [Accepted.OK]
    assert wire.run(requests.deadline(wire.keys, TENANT, "a")) == long_ago + 30_000
    wire.join()
    (work,) = wire.take()
    assert work.deadline_ms == long_ago + 30_000


def test_an_entry_past_its_deadline_is_late(wire):
    entry = wire.enter("a", entry_id=f"{wire.now_ms() - 10_000}-0")
    assert wire.accept(wire.item("a", entry, timeout_ms=5_000)) == [Accepted.LATE]
    assert wire.server.zcard(wire.keys.due) == 0
    assert wire.ingress_left() == (1, 1)


def test_a_full_backlog_is_busy_and_keeps_the_entry(wire):
    wire.open("a", "b", backlog=2)
    entry = wire.enter("c")
    assert wire.accept(wire.item("c", entry), backlog=2) == [Accepted.BUSY]
    assert wire.ingress_left() == (1, 1)
    wire.expire("a")
    assert wire.accept(wire.item("c", entry), backlog=2) == [Accepted.OK]


def test_each_item_of_an_accept_call_stands_alone(wire):
    wire.open("dup")
    wire.server.delete(wire.queue(64))
    names = ("ok", "dup", "refused", "stale", "gone")
    entries = {name: wire.enter(name) for name in names}
    wire.server.xdel(wire.ingress, entries["gone"])
    large = b"x" * (limits.COPY_IN_SERVER_BYTES + 1)
    outcomes = wire.accept(
        wire.item("ok", entries["ok"]),
        wire.item("dup", entries["dup"]),
        wire.item("refused", entries["refused"], refusal=REFUSAL),
        wire.item("stale", entries["stale"], bucket=64),
        wire.item("gone", entries["gone"], inputs=large),
    )
    assert outcomes == [
        Accepted.OK,
        Accepted.DUP,
        Accepted.REFUSED,
        Accepted.STALE,
        Accepted.GONE,
    ]
    assert wire.ingress_left() == (1, 1)


def test_large_inputs_are_copied_inside_the_server(wire):
    large = secrets.token_bytes(4 * limits.COPY_IN_SERVER_BYTES)
    command = requests.accept(
        wire.keys, wire.ingress, 100, [wire.item("a", wire.enter("a", large), inputs=large)]
    )
    assert sum(len(part) for part in command.parts if isinstance(part, bytes)) < len(large)
    assert wire.run(command)[1] == [Accepted.OK]
    wire.join()
    (work,) = wire.take()
    assert work.inputs == large


def test_refusals_live_for_half_a_minute_and_leave_no_tombstone(wire):
    assert wire.send("a", refusal=REFUSAL) is Accepted.REFUSED
    assert 0 < wire.server.pttl(wire.reply_key("a")) <= 30_000
    assert not wire.server.exists(wire.tombstone("a"))
    assert wire.server.zcard(wire.keys.due) == 0


def test_an_answer_and_its_tombstone_live_as_long_as_was_asked(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert TTL_MS - 5_000 < wire.server.pttl(wire.reply_key("a")) <= TTL_MS
    assert 2 * TTL_MS - 5_000 < wire.server.pttl(wire.tombstone("a")) <= 2 * TTL_MS
    assert wire.run(requests.tombstone(wire.keys, TENANT, "a")) == "ok"


def test_a_tombstone_outlives_a_reply_that_was_taken(wire):
    wire.open("a")
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.server.lpop(wire.reply_key("a")) == ANSWER
    assert wire.send("a") is Accepted.DUP
    assert wire.replies("a") == []


# Taking.


def test_room_is_for_all_streams_together_in_the_order_given(wire):
    for bucket in BUCKETS:
        wire.open(*(f"{bucket}-{at}" for at in range(5)), bucket=bucket)
    wire.join()
    streams = [wire.queue(32), wire.queue(16), wire.queue(64)]
    taken = wire.take(room=8, streams=streams)
    expected = [f"32-{at}" for at in range(5)] + [f"16-{at}" for at in range(3)]
    assert [work.id for work in taken] == expected
    assert [wire.pending(stream) for stream in streams] == [5, 3, 0]


def test_a_request_of_many_rows_counts_for_half_a_batch_at_most(wire):
    wire.open("big", rows=500)
    wire.open("small")
    wire.join()
    assert [work.id for work in wire.take(room=5)] == ["big", "small"]


def test_the_bell_is_rung_again_when_room_runs_out(wire):
    wire.open("a", "b", "c")
    wire.join()
    assert wire.server.lrange(wire.bell, 0, -1) == [b"1"]
    assert wire.run(requests.wait_for_bell([wire.bell], 1))
    assert len(wire.take(room=2)) == 2
    assert wire.server.llen(wire.bell) == 1
    assert len(wire.take(room=2)) == 1
    assert wire.server.llen(wire.bell) == 1
    assert wire.run(requests.wait_for_bell([wire.bell], 1))
    assert wire.take(room=2) == []
    assert wire.server.llen(wire.bell) == 0


def test_entries_of_closed_requests_are_dropped_and_take_no_room(wire):
    names = [f"r{at}" for at in range(40)]
    wire.open(*names)
    for name in names[:37]:
        assert wire.expire(name) is Finished.ANSWERED
    wire.join()
    assert [work.id for work in wire.take(room=3)] == names[37:]
    assert wire.server.xlen(wire.queue()) == 3
    assert wire.pending(wire.queue()) == 3


def test_a_stream_that_is_gone_is_passed_over(wire):
    wire.open("a", bucket=64)
    wire.server.delete(wire.queue(16))
    wire.join()
    assert [work.id for work in wire.take()] == ["a"]


def test_a_foreign_entry_in_a_work_stream_spoils_only_itself(wire):
    wire.open("a")
    wire.server.xadd(wire.queue(), {"written": "by hand"})
    wire.open("b")
    wire.join()
    taken = wire.run(
        requests.take(wire.keys, "w1", RECORD, fleet.queue_streams(wire.keys, RECORD), 10)
    )
    names = [flat[1] for _, entries in taken for _, flat in entries]
    assert [name for name in names if name in (b"a", b"b")] == [b"a", b"b"]


def test_closed_entries_do_not_pile_up_while_nobody_takes(wire):
    """Open requests are bounded by the backlog; the entries of those that expired must be too."""
    backlog = 4
    for at in range(50 * backlog):
        if wire.send(f"r{at}", backlog=backlog) is Accepted.OK:
            wire.expire(f"r{at}")
    assert wire.server.xlen(wire.queue()) <= 10 * backlog


# Scripts that the server does not know any more.


def test_a_forgotten_script_is_loaded_again(wire):
    wire.server.script_flush()
    wire.open("a")
    wire.join()
    wire.server.script_flush()
    (work,) = wire.take()
    wire.server.script_flush()
    assert wire.settle(work) is Finished.ANSWERED


def test_a_forgotten_script_is_loaded_again_inside_a_pipeline(wire):
    wire.open("a", "b")
    wire.join()
    wire.server.script_flush()
    count, first, length, second = wire.executor.run_all(
        [
            requests.open_requests(wire.keys),
            requests.finish(wire.keys, "", [wire.end("a", EXPIRED)]),
            requests.stream_length(wire.queue()),
            requests.finish(wire.keys, "", [wire.end("b", EXPIRED)]),
        ]
    )
    assert (count, length) == (2, 2)
    assert first == second == [Finished.ANSWERED]


# Memory.


@pytest.fixture
def full_server(tmp_path):
    """A server of the test's own, to be filled."""
    server = EmbeddedServer(ServerOptions(program=find_server()))
    server.start()
    with wired(server.url, "full") as found:
        yield found
    server.stop()


def fill(wire):
    """From now on the server is over its `maxmemory`."""
    wire.server.config_set("maxmemory", 1)


def test_finish_goes_through_when_memory_is_full_and_accept_does_not(full_server):
    wire = full_server
    wire.open("a", "b")
    wire.join()
    work = wire.take(room=1)[0]
    entry = wire.enter("c")
    fill(wire)
    assert wire.settle(work) is Finished.ANSWERED
    assert wire.expire("b") is Finished.ANSWERED
    with pytest.raises(OutOfMemoryError):
        wire.accept(wire.item("c", entry))
    assert wire.run(fleet.leave(wire.keys, "w1"))
    wire.server.config_set("maxmemory", 0)
    assert wire.replies("a") == [ANSWER]
    assert wire.accept(wire.item("c", entry)) == [Accepted.OK]


def test_a_worker_goes_on_beating_and_taking_when_memory_is_full(full_server):
    """Or nothing that waits is ever run, and memory stays full."""
    wire = full_server
    wire.open("a")
    wire.join()
    fill(wire)
    assert wire.run(requests.overdue(wire.keys, 10)) == []
    assert wire.run(fleet.beat(wire.keys, "w1", TTL_MS, {})) > 0
    assert [work.id for work in wire.take()] == ["a"]
