"""X3–X7: a neighbour's p99 while somebody sends requests that are made to cost as much as they can.

One fleet, one worker: the neighbour's model and the others share the device process. Each kind is
sent for a while, one after the other, beside fifty requests a second of the neighbour.
"""

import secrets
import struct
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import quantiles
from time import perf_counter

import redis

from batchfleet.models.drafting import Wishes, draft_of_file
from batchfleet.wire.codec import MSGPACK
from tests.support.fleet import draft_of, limits

from .own_fleet import own_fleet
from .pause import pause_s
from .promise import at_most, attempt, equals
from .steady_load import OK, LoadPlan, SteadyLoad

NEIGHBOUR, COSTLY, FAILING = "neighbour", "costly", "failing"
RATE_PER_S = 50.0
SPAN_S, QUICK_SPAN_S = 20.0, 6.0
# Of the worker's log, for thousands of requests that fail.
LOG_BYTES = 100_000
_BODY_BYTES = 4 * 1024 * 1024
_INPUTS = bytes(300_000_000)
_MAPS = b"\xdd" + struct.pack(">I", _BODY_BYTES - 5) + b"\x80" * (_BODY_BYTES - 5)
_CLASS = """
import batchfleet


class Failing(batchfleet.Model):
    def predict(self, rows, context):
        raise KeyError(rows[0]["text"])
"""


class _Trickle(BaseHTTPRequestHandler):
    """Says one byte of its head every 0.2 s."""

    def do_GET(self):
        try:
            while not self.server.over.wait(0.2):
                self.wfile.write(b"H")
                self.wfile.flush()
        except OSError:
            return  # the fetcher has shut it

    def log_message(self, *_):
        pass


@contextmanager
def _trickling():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Trickle)
    server.over = threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.over.set()
        server.shutdown()
        thread.join(10)
        server.server_close()


def costly_requests(*, quick):
    """One fleet for all kinds, each beside the same neighbour."""
    span_s = QUICK_SPAN_S if quick else SPAN_S
    with _trickling() as root:
        costly = draft_of("echo", COSTLY, limits=limits(input_prefixes=(root,)))
        with own_fleet(draft_of("echo", NEIGHBOUR), costly, allow_code="own") as fleet:
            _serve_failing(fleet)
            quiet_ms = _p99_ms(fleet, span_s, lambda: pause_s(0.1))[0]
            kinds = {
                "X3: entries of 300 MB": _large_entry,
                "X4: 4 MB of empty maps": lambda fleet: _ask(
                    fleet, COSTLY, "bad_inputs", inputs=_MAPS, content_type=MSGPACK
                ),
                "X6: eight that trickle": lambda fleet: _trickle(fleet, root),
                "X7: a hundred that fail": _fail,
            }
            found = [
                promise
                for kind, provoke in kinds.items()
                for promise in attempt(
                    kind, lambda kind=kind, provoke=provoke: _beside(
                        fleet, kind, provoke, span_s, quiet_ms
                    )
                )
            ]  # fmt: skip
            size = fleet.worker.log_path.stat().st_size
            return [*found, at_most("X7: bytes of the worker's log", size, LOG_BYTES)]


def _beside(fleet, kind, provoke, span_s, quiet_ms):
    p99_ms, ended = _p99_ms(fleet, span_s, lambda: provoke(fleet))
    return [
        equals(f"{kind}: the neighbour's answers", ended, {OK}),
        at_most(f"… its p99 ÷ {quiet_ms:.1f} ms when quiet", p99_ms / quiet_ms, 2),
    ]


def _p99_ms(fleet, span_s, provoke):
    """The neighbour's p99 while something is done again and again, and how its requests ended."""
    plan = LoadPlan(model=NEIGHBOUR, rate_per_s=RATE_PER_S, timeout_ms=30_000)
    with SteadyLoad(fleet, plan) as load:
        give_up = perf_counter() + span_s
        while perf_counter() < give_up:
            provoke()
            pause_s(0.5)
        load.stop()
        waits_ms = [(one.over_at - one.sent_at) * 1000 for one in load.requests]
        ended = {one.outcome for one in load.requests}
    return quantiles(waits_ms, n=100)[98], ended


def _serve_failing(fleet):
    path = fleet.folder / "failing.py"
    path.write_text(_CLASS)
    path.chmod(0o600)
    draft, sources = draft_of_file(path, Wishes(model=FAILING, version="1", class_name="Failing"))
    fleet.deploy_record(FAILING, fleet.store.publish(draft, sources).record())
    fleet.wait_served(FAILING)
    fleet.wait_routed(FAILING)


def _ask(fleet, model, error, **fields):
    reply = fleet.ask(model, None, **fields)
    assert reply.error["name"] == error, reply.error


def _large_entry(fleet):
    """A server of ours does not take it; what one does that takes it is a matter of quotas."""
    stream = fleet.keys(COSTLY).ingress("default")
    with suppress(redis.RedisError):
        fleet.server.xadd(stream, {"id": "large", "inputs": _INPUTS}, nomkstream=True)
        raise AssertionError("it was taken")


def _trickle(fleet, root):
    where = {"text": None, "inputs_at": f"{root}x", "inputs_bytes": "10"}
    ids = fleet.submit_all(COSTLY, [where] * 8)
    for reply in fleet.replies(COSTLY, ids, timeout_s=30.0):
        assert reply.error["name"] == "payload_missing", reply.error


def _fail(fleet):
    ids = fleet.submit_all(FAILING, [{"text": secrets.token_hex(2000)}] * 100)
    for reply in fleet.replies(FAILING, ids):
        assert reply.error["name"] == "model_error", reply.error
