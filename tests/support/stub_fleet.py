"""A fleet of one process without router, worker or model: it accepts, takes and finishes.

The reply echoes the inputs as outputs. Run as a program, it serves until its parent closes stdin.
"""

import asyncio
import secrets
import sys
import threading
from dataclasses import dataclass, field

from batchfleet.broker import fleet, ingress, membership, requests
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.service.lifecycle import guarded_thread
from batchfleet.wire.codec import JSON, decode_body, encode_body
from batchfleet.wire.deployment import Stamp, VersionRecord
from batchfleet.wire.errors import ErrorBody, ErrorKind
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.reply import Envelope, Receipt, Usage, encode_answer, encode_error
from batchfleet.wire.request import cancelled_id, parse_request
from batchfleet.wire.tensors import decode_columns, encode_columns
from batchfleet.wire.work import parse_work, work_fields

TENANT = "default"
VERSION = "1"
RECORD = VersionRecord(version=VERSION)
_TTL_MS = 60_000
_PATIENCE_S = 20.0
_STAMP = Stamp(1, "n")


def deploy_model(url, namespace, model, tenants=(TENANT,)):
    """Deploy version 1 of `model` with one bucket; return its keys."""
    keys = ModelKeys(namespace, model)
    with BlockingExecutor(url, "stub-deploy") as executor:
        executor.run(fleet.deploy(keys, RECORD, fleet.queue_streams(keys, RECORD), "n", tenants))
        executor.run(fleet.enlist_model(namespace, model))
    return keys


@dataclass
class StubFleet:
    """Serves one deployed model. `runs` counts how often each id was run."""

    url: str
    keys: ModelKeys
    refusal: bytes = b""
    runs: dict = field(default_factory=dict)

    def __post_init__(self):
        self.worker = f"stub-{secrets.token_hex(4)}"
        self.queue = self.keys.queue(VERSION, "normal", 0)
        self.bell = self.keys.bell(VERSION)
        self.open = threading.Event()
        self.open.set()
        self._stop = threading.Event()
        self._thread = None
        self._failure = None

    def __enter__(self):
        self._thread = guarded_thread("stub fleet", self.serve, self._fail)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self.open.set()
        self._thread.join(10)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _fail(self, error):
        self._failure = error

    def serve(self):
        with BlockingExecutor(self.url, "stub") as executor:
            executor.run(membership.join(self.keys, self.worker, _TTL_MS, {}))
            while not self._stop.is_set():
                self.pump(executor, block_ms=50)
                if self.open.is_set():
                    self.work(executor)
            executor.run(membership.leave(self.keys, self.worker))

    def pump(self, executor, block_ms):
        """Accept what is in the ingress stream."""
        stream = self.keys.ingress(TENANT)
        read = executor.run(ingress.read([stream], self.worker, 64, block_ms))
        for _, entries in read:
            cancelled = {e: name for e, flat in entries if (name := cancelled_id(flat))}
            items = [self.accept_item(e, flat) for e, flat in entries if e not in cancelled]
            executor.run(requests.accept(self.keys, stream, _STAMP, 100_000, items))
            for entry_id, request_id in cancelled.items():
                self.cancel(executor, request_id)
                executor.run_all(ingress.drop(stream, [entry_id]))

    def cancel(self, executor, request_id):
        envelope = Envelope(id=request_id, tenant=TENANT, accept=JSON, model=self.keys.model)
        item = requests.FinishItem(
            stream="",
            entry_id=b"",
            tenant=TENANT,
            request_id=request_id,
            reply=encode_error(envelope, ErrorBody(ErrorKind.CANCELLED, "taken back")),
            status="cancelled",
            result_ttl_ms=300_000,
            tombstone_ttl_ms=360_000,
        )
        executor.run(requests.finish(self.keys, "", [item]))

    def accept_item(self, entry_id, flat):
        request = parse_request(flat, 1 << 24)
        refused = bool(self.refusal)
        return requests.AcceptItem(
            entry_id=entry_id,
            tenant=TENANT,
            request_id=request.id,
            timeout_ms=request.timeout_ms or 60_000,
            queue="" if refused else self.queue,
            bell="" if refused else self.bell,
            fields=work_fields(request, TENANT),
            inputs=request.inputs,
            inputs_at=request.inputs_at or "",
            refusal=self.refusal and self.refusal.replace(b"ID", request.id.encode()),
        )

    def work(self, executor):
        """Answer what is waiting."""
        taken = executor.run(
            requests.take(self.keys, self.worker, _STAMP, RECORD, [self.queue], 256)
        )
        works = [parse_work(s, i, flat) for s, entries in taken for i, flat in entries]
        items = [self.answer(self.with_inputs(executor, work)) for work in works]
        for batch in requests.split_finish(items):
            executor.run(requests.finish(self.keys, self.worker, batch))

    def with_inputs(self, executor, work):
        if work.inputs_at != "blob":
            return work
        command = requests.blob(self.keys, work.tenant, work.id, 1 << 24)
        return work._replace(inputs=executor.run(command))

    def answer(self, work):
        self.runs[work.id] = self.runs.get(work.id, 0) + 1
        envelope = Envelope(
            id=work.id,
            tenant=work.tenant,
            accept=work.accept,
            model=self.keys.model,
            version=VERSION,
            meta=work.meta,
            warnings=work.warnings,
        )
        outputs = work.inputs
        if work.accept != work.content_type:
            columns = decode_columns(decode_body(work.inputs, work.content_type))
            outputs = encode_body(encode_columns(columns, work.accept), work.accept)
        receipt = Receipt(batch=f"{self.worker}:1", rows=1, release="idle", lineage="0" * 16)
        return requests.FinishItem(
            stream=work.stream,
            entry_id=work.entry_id,
            tenant=work.tenant,
            request_id=work.id,
            reply=encode_answer(envelope, outputs, Usage(rows=work.rows), receipt),
            status="ok",
            result_ttl_ms=work.result_ttl_ms or 300_000,
            tombstone_ttl_ms=360_000,
        )


async def reached(client, request, state):
    """Wait until a request of a client stands there."""
    async with asyncio.timeout(_PATIENCE_S):
        while await client.status(request) is not state:
            pass


def main(url, namespace, model):
    """Deploy and serve until stdin ends; says `ready` first."""
    stub = StubFleet(url, deploy_model(url, namespace, model))
    with stub:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
