"""A fleet of real processes: routers and consumers as their users start them, on a test's server.

Nothing here sleeps: whoever waits says for what, and for how long at most.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

import psutil
import redis

from batchfleet.broker import membership
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.models.drafting import PublishOptions, draft_of_file
from batchfleet.models.importing import builtin_draft
from batchfleet.models.runtimes.echo import echo_digest
from batchfleet.models.store import Store
from batchfleet.ops import deployment
from batchfleet.service import fault_points
from batchfleet.service.settings import SETTING_ROWS
from batchfleet.wire.codec import decode_outputs
from batchfleet.wire.deployment import Limits
from batchfleet.wire.keys import DEFAULT_TENANT, ModelKeys
from batchfleet.wire.reply import decode_reply

from .program import PATIENCE_S, Program
from .server import delete_namespace

_LOOK_AGAIN_S = 0.005
# Everything that a test waits for depends on these; the defaults are for people.
_QUICK = {"refresh_ms": 100, "log_format": "json", "grace_ms": 10_000}
# For a fleet that is measured: as people have it.
UNHURRIED = {name: SETTING_ROWS[name].default for name in ("refresh_ms", "grace_ms")}


def until(condition, what, timeout_s=PATIENCE_S):
    """Wait until `condition()` holds and return its value; fail with `what` after the time-out."""
    give_up = monotonic() + timeout_s
    pause = threading.Event()
    while not (found := condition()):
        assert monotonic() < give_up, f"after {timeout_s:g} s still not: {what}"
        pause.wait(_LOOK_AGAIN_S)
    return found


def runs(pid):
    """Whether a process runs; who has ended and is not reaped yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def draft_of(builtin, model, *, limits=None, parameters=None, **changes):
    """The manifest of a built-in model under another name, with some parts changed.

    The fault switches of `echo` work.
    """
    draft = builtin_draft(builtin)
    if builtin == "echo":
        draft = replace(draft, parameters={"faults": True})
    return replace(
        draft,
        model=model,
        limits=replace(draft.limits, **(limits or {})),
        parameters={**draft.parameters, **(parameters or {})},
        **changes,
    )


@dataclass
class Fleet:
    """Programs on one server in one namespace, and what a test does with them.

    `settings` are those of every program that is started; each start may override some. `routers`
    and `workers` are those that `bring_up` has started.
    """

    url: str
    namespace: str
    folder: Path
    settings: dict = field(default_factory=dict)
    programs: list = field(default_factory=list)
    routers: list = field(default_factory=list)
    workers: list = field(default_factory=list)

    def __post_init__(self):
        self.server = redis.Redis.from_url(self.url, socket_timeout=PATIENCE_S * 2, retry=None)
        self.executor = BlockingExecutor(self.url, "test")
        self.store = Store(str(self.folder / "store"))
        self.operator = deployment.Operator(
            executor=self.executor,
            namespace=self.namespace,
            draw_nonce=lambda: secrets.token_hex(4),
        )

    def close(self):
        """Stop every program; what does not obey is killed and fails the test."""
        for program in reversed(self.programs):
            if program.is_running():
                program.process.send_signal(signal.SIGCONT)
                program.process.terminate()
        late = []
        for program in self.programs:
            try:
                program.wait()
            except subprocess.TimeoutExpired:
                program.kill()
                late.append(program.kind)
        self.server.close()
        self.executor.close()
        assert not late, f"had to be killed: {late}"

    # Programs.

    def start(self, kind, python=sys.executable, faults="", **settings):
        """Start a program, in the environment of `python`, without waiting for it.

        `faults` arms fault points.
        """
        values = {
            **_QUICK,
            **self.settings,
            "redis_url": self.url,
            "namespace": self.namespace,
            "store": self.store.root,
            **settings,
        }
        environ = {SETTING_ROWS[name].variable: str(value) for name, value in values.items()}
        environ[fault_points.VARIABLE] = faults
        log_path = self.folder / f"{kind}-{len(self.programs)}.log"
        program = Program(kind, {"PATH": os.defpath, **environ}, log_path, python)
        self.programs.append(program)
        return program

    def router(self, **settings):
        return self.start("router", **settings).wait_until_ready()

    def consumer(self, **settings):
        return self.start("consumer", **settings).wait_until_ready()

    def start_all(self, *kinds, **settings):
        """Start programs at once, and wait until all are ready; returns them."""
        programs = [self.start(kind, **settings) for kind in kinds]
        return [program.wait_until_ready() for program in programs]

    def bring_up(self, *drafts, routers=1, workers=1, ready_s=PATIENCE_S, **settings):
        """Deploy, start routers, and workers with `settings`, and wait until they serve.

        Returns the workers.
        """
        for draft in drafts:
            self.deploy(draft)
        self.routers = [self.start("router") for _ in range(routers)]
        self.workers = [self.start("consumer", **settings) for _ in range(workers)]
        for program in (*self.routers, *self.workers):
            program.wait_until_ready(ready_s)
        for draft in drafts:
            self.wait_until_served(draft.model, draft.version, workers)
        return self.workers

    # Models.

    def keys(self, model):
        return ModelKeys(self.namespace, model)

    def deploy(self, draft, sources=None):
        """Publish and deploy a version; programs notice within their `refresh_ms`."""
        return self.deploy_record(draft.model, self.store.publish(draft, sources or {}).record())

    def publish_code(self, text, model, version="1", **options):
        """Publish a class of one's own, from the text of its file; returns the manifest."""
        path = self.folder / "model.py"
        path.write_text(text)
        path.chmod(0o600)
        options = PublishOptions(model=model, version=version, **options)
        return self.store.publish(*draft_of_file(path, options))

    def deploy_code(self, text, model, version="1", **options):
        """Publish and deploy a class of one's own; returns the manifest."""
        manifest = self.publish_code(text, model, version, **options)
        self.deploy_record(model, manifest.record())
        return manifest

    def operator_sets(self, model, **limits):
        """Override limits of a deployed model."""
        deployment.override(self.operator, model, limits)

    def deploy_record(self, model, record, tenants=(DEFAULT_TENANT,)):
        """Deploy a version that is in the store already."""
        deployment.deploy(self.operator, model, record, tenants)
        return self.keys(model)

    def serve(self, draft, workers=1):
        """Deploy a version, and wait until workers and the router are ready for it."""
        keys = self.deploy(draft)
        self.wait_until_served(draft.model, draft.version, workers)
        return keys

    def wait_until_served(self, model, version="1", workers=1):
        """Wait until workers and a router are ready for a version."""
        self.wait_served(model, version, workers)
        self.wait_routed(model)

    def living(self, model):
        """Names of the workers that are alive for a model."""
        return {name.decode() for name in self.server.zrange(self.keys(model).workers, 0, -1)}

    def lanes(self, model):
        """What each living worker announces about a model: worker → version → state."""
        keys = self.keys(model)
        workers = self.executor.run(membership.living(keys))
        found = {
            worker: self.executor.run(membership.announcement(keys, worker)) for worker in workers
        }
        return {name: json.loads(fields.get("lanes", b"{}")) for name, fields in found.items()}

    def wait_served(self, model, version="1", workers=1):
        def enough():
            states = [lanes.get(version, {}).get("state") for lanes in self.lanes(model).values()]
            return states.count("ready") >= workers

        until(enough, f"{workers} workers serve {model}/{version}: {self.lanes(model)}")

    def wait_routed(self, model, tenant=DEFAULT_TENANT):
        """Wait until a router reads the ingress of a model."""
        stream = self.keys(model).ingress(tenant)

        def reading():
            return any(
                group[b"name"] == b"router" and group[b"consumers"] > 0
                for group in map(_by_bytes, self.server.xinfo_groups(stream))
            )

        until(reading, f"a router reads {stream}")

    # Requests, as any client makes them.

    def submit(self, model, text="hello", tenant=DEFAULT_TENANT, **fields):
        """Add an entry; `text` may be a list of rows, or None where `inputs` are given."""
        return self.submit_all(model, [{"text": text, **fields}], tenant)[0]

    def submit_all(self, model, requests, tenant=DEFAULT_TENANT, *, together=False):
        """Add entries in one round trip; each is a mapping of what `submit` takes.

        A router that waits is handed the first entry as soon as it is there, unless they come
        `together`.
        """
        entries = [_entry_of(**request) for request in requests]
        stream = self.keys(model).ingress(tenant)
        with self.server.pipeline(transaction=together) as pipe:
            for entry in entries:
                pipe.xadd(stream, entry, nomkstream=True)
            added = pipe.execute()
        assert None not in added, f"{model} is not deployed for {tenant}"
        return [entry["id"] for entry in entries]

    def raw_reply(self, model, request_id, timeout_s=PATIENCE_S, tenant=DEFAULT_TENANT):
        key = self.keys(model).reply(tenant, request_id)
        raw = self.server.blmove(key, key, timeout_s, "LEFT", "LEFT")
        assert raw is not None, f"no reply to {request_id} within {timeout_s:g} s"
        return raw

    def reply(self, model, request_id, timeout_s=PATIENCE_S, tenant=DEFAULT_TENANT):
        """The terminal item of a request, outputs included; it stays under the reply key."""
        reply = decode_reply(self.raw_reply(model, request_id, timeout_s, tenant))
        if reply.outputs_at is None:
            return reply
        raw = self.server.get(reply.outputs_at.removeprefix("blob:"))
        return replace(reply, outputs=decode_outputs(raw))

    def replies(self, model, request_ids, timeout_s=PATIENCE_S):
        return [self.reply(model, request_id, timeout_s) for request_id in request_ids]

    def ask(self, model, text="hello", timeout_s=PATIENCE_S, **fields):
        """Submit and wait."""
        return self.reply(model, self.submit(model, text, **fields), timeout_s)

    def items(self, model, request_id, tenant=DEFAULT_TENANT):
        """Everything under the reply key; the promise is one."""
        return self.server.lrange(self.keys(model).reply(tenant, request_id), 0, -1)

    def runs(self, model):
        """How many work entries were ever made for a model: one a request that was accepted."""
        return sum(
            _by_bytes(self.server.xinfo_stream(stream))[b"entries-added"]
            for stream in self.queues(model)
        )

    def open_requests(self, model):
        return self.server.zcard(self.keys(model).due)

    def queues(self, model):
        """The work streams of a model that exist."""
        found = self.server.scan_iter(f"{_escaped(self.keys(model).prefix)}q:*", count=1000)
        return sorted(name.decode() for name in found)

    def pending(self, model):
        """Entries that workers have taken and not settled."""
        return sum(
            self.server.xpending(stream, "worker")["pending"] for stream in self.queues(model)
        )

    def waiting(self, model):
        """Entries in work streams, taken or not."""
        return sum(self.server.xlen(stream) for stream in self.queues(model))

    def ingress_length(self, model, tenant=DEFAULT_TENANT):
        return self.server.xlen(self.keys(model).ingress(tenant))

    def wait_idle(self, model, timeout_s=PATIENCE_S):
        """Wait until nothing of a model is on its way any more."""

        def empty():
            return not (
                self.ingress_length(model) or self.open_requests(model) or self.waiting(model)
            )

        until(empty, f"{model} is idle", timeout_s)


def _entry_of(text="hello", **fields):
    rows = [text] if isinstance(text, str) else text
    body = {} if rows is None else {"inputs": json.dumps({"text": list(rows)})}
    return {"id": secrets.token_hex(8), **body, **fields}


def _by_bytes(facts):
    """Facts by bytes names, whichever way the library spells them."""
    return {key.encode() if isinstance(key, str) else key: value for key, value in facts.items()}


def _escaped(prefix):
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in prefix)


def limits(**values):
    """Limits for `draft_of`, checked for their names."""
    replace(Limits(), **values)
    return values


@contextmanager
def running_fleet(server, namespace, folder, **settings):
    """A fleet without programs yet; all that were started are stopped at the end."""
    fleet = Fleet(url=server.socket_url, namespace=namespace, folder=folder, settings=settings)
    try:
        yield fleet
    finally:
        fleet.close()


@contextmanager
def shared_fleet(server, folder, *drafts, workers=1, **settings):
    """A fleet that serves these drafts to many tests, none of which may end its programs."""
    namespace = f"t{secrets.token_hex(6)}"
    with running_fleet(server, namespace, folder, **settings) as fleet:
        fleet.bring_up(*drafts, workers=workers)
        yield fleet
        assert all(program.is_running() for program in (*fleet.routers, *fleet.workers))
    delete_namespace(server.socket_url, namespace)


def tokens_draft(model, **changes):
    """A model that counts four characters as a token and is placed by length."""
    values = limits(buckets=(16, 32, 64, 128, 256), max_length=256, truncate="end")
    return draft_of(
        "echo",
        model,
        limits={**values, **changes},
        parameters={"characters_per_token": 4},
        bytes_per_token=4.0,
    )


def worker_of(reply):
    return reply.receipt["batch"].rpartition(":")[0]


def data_of(reply, name):
    return next(output["data"] for output in reply.outputs if output["name"] == name)


def digests(texts, version="1"):
    return [echo_digest({"text": text}, version) for text in texts]


def check_all_ok(replies):
    """Every reply is an answer; shows the errors where not."""
    failed = [reply.error for reply in replies if reply.status != "ok"]
    assert not failed, f"{len(failed)} of {len(replies)} failed, first {failed[0]}"
