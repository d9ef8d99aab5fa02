"""The commands in the hands of a test, and the kinds of brokers that they must run on."""

import secrets
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

import redis
from support.fleet import until
from support.server import KINDS, program_of

from batchfleet.broker import fleet, ingress, later, membership, requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.interface import Broker, Executor
from batchfleet.broker.requests import Accepted, AcceptItem, FinishItem
from batchfleet.service.lifecycle import spawn
from batchfleet.wire.deployment import Limits, Stamp, VersionRecord
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request
from batchfleet.wire.work import parse_work, work_fields

from .ports import free_port

TENANT = "default"
BUCKETS = (16, 32, 64)
RECORD = VersionRecord(version="1", limits=Limits(buckets=BUCKETS, max_batch_size=8))
TTL_MS = 60_000
INPUTS = b'{"text": ["hello"]}'
ANSWER, EXPIRED, REFUSAL = b"answer", b"expired", b"refusal"


@contextmanager
def cluster_node(folder):
    """One server in cluster mode that owns every slot."""
    port = free_port()
    password = secrets.token_hex(16)
    (folder / "server.conf").write_text(f"requirepass {password}\n")
    command = [
        *(program_of(KINDS[0]), str(folder / "server.conf")),
        *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
        *("--cluster-enabled", "yes", "--cluster-port", str(free_port())),
        *("--cluster-config-file", str(folder / "nodes.conf")),
    ]
    with (folder / "server.log").open("wb") as log:
        process = spawn(command, stdout=log, stderr=subprocess.STDOUT)
    url = f"redis://:{password}@127.0.0.1:{port}/0"
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


@dataclass
class Wire:
    """The commands in the hands of a test: what routers and workers do, one step at a time."""

    broker: Broker
    executor: Executor
    keys: ModelKeys

    def run(self, command):
        return self.executor.run(command)

    def ask(self, *parts):
        """The raw answer to a plain command."""
        return self.run(plain(as_is, *parts))

    def queue(self, bucket=16, priority="normal"):
        return self.keys.queue("1", priority, bucket)

    @property
    def bell(self):
        return self.keys.bell("1")

    @property
    def ingress(self):
        return self.keys.ingress(TENANT)

    def stamp(self):
        """Of the deploy record in force; of none where the model is not deployed."""
        found = self.run(fleet.deployment(self.keys))
        return Stamp() if found is None else found.stamp

    def now_ms(self):
        return int(self.run(fleet.server_time()))

    def enter(self, request_id, inputs=INPUTS, entry_id="*"):
        """Add an ingress entry and have a router read it; returns its id."""
        added = self.ask("XADD", self.ingress, entry_id, "id", request_id, "inputs", inputs)
        self.run(ingress.read([self.ingress], "router-1", 100, 0))
        return added

    def item(self, request_id, entry_id, **changes):
        values = {
            "timeout_ms": 60_000,
            "bucket": 16,
            "refusal": b"",
            "inputs": INPUTS,
            "rows": None,
            "delay_ms": 0,
            "retries": None,
            "version": None,
            "inputs_at": None,
            "result_ttl_ms": None,
        }
        values |= changes
        names = ("rows", "retries", "version", "inputs_at", "result_ttl_ms")
        named = {name: values[name] for name in names}
        inputs = b"" if named["inputs_at"] else values["inputs"]
        request = Request(id=request_id, inputs=inputs, **named)
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
            inputs_at="" if refused else named["inputs_at"] or "",
            delay_ms=values["delay_ms"],
            result_ttl_ms=values["result_ttl_ms"] or 0,
        )

    def accept(self, *items, backlog=100, stamp=None):
        stamp = stamp or self.stamp()
        return self.run(requests.accept(self.keys, self.ingress, stamp, backlog, items))[1]

    def send(self, request_id, backlog=100, **changes):
        """Enter and accept one request; returns the outcome."""
        entry_id = self.enter(request_id, changes.get("inputs", INPUTS))
        return self.accept(self.item(request_id, entry_id, **changes), backlog=backlog)[0]

    def open(self, *request_ids, **changes):
        for request_id in request_ids:
            assert self.send(request_id, **changes) is Accepted.OK

    def join(self, worker="w1"):
        assert self.run(membership.join(self.keys, worker, TTL_MS, {}))
        return worker

    def take(self, worker="w1", room=100, streams=None, stamp=None):
        """Take; returns work entries in the order given."""
        wanted = streams or fleet.queue_streams(self.keys, RECORD)
        stamp = stamp or self.stamp()
        taken = self.run(requests.take(self.keys, worker, stamp, RECORD, wanted, room))
        return [parse_work(stream, entry, flat) for stream, some in taken for entry, flat in some]

    def finish(self, worker, *items):
        return self.run(requests.finish(self.keys, worker, items))

    def be_ripe(self, *parked_ids):
        """Have the time of parked requests come; of all of them where none is named."""
        for parked_id in parked_ids or self.ask("ZRANGE", self.keys.later, 0, -1):
            self.ask("ZADD", self.keys.later, "XX", 1, parked_id)

    def promote(self, count=10, stamp=None):
        """Move what is ripe, as a router does; returns ids and outcomes."""
        items = self.run(later.ripe(self.keys, count))
        outcomes = self.run(later.promote(self.keys, stamp or self.stamp(), items))
        return [(item.request_id, outcome) for item, outcome in zip(items, outcomes, strict=True)]

    def parked(self):
        """Entries that are parked, and those that have a time."""
        return self.ask("XLEN", self.keys.parked), self.ask("ZCARD", self.keys.later)

    def retry(self, work, worker="w1", delay_ms=60_000):
        return self.run(later.retry(self.keys, worker, work, self.bell, delay_ms))

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
        return self.ask("LRANGE", self.reply_key(request_id), 0, -1)

    def pending(self, stream):
        return self.ask("XPENDING", stream, "worker")[0]

    def ingress_left(self):
        """Entries in ingress, and those that a router has read and not ended."""
        return (
            self.ask("XLEN", self.ingress),
            self.ask("XPENDING", self.ingress, "router")[0],
        )


@contextmanager
def wired(broker, namespace):
    """A deployed model on a broker, without any program."""
    keys = ModelKeys(namespace, "m")
    with broker.connect("test") as executor:
        streams = fleet.queue_streams(keys, RECORD)
        executor.run(fleet.deploy(keys, RECORD, streams, "n", [TENANT]))
        yield Wire(broker, executor, keys)
