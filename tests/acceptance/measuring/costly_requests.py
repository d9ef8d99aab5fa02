"""X3–X7: a neighbour's p99 while somebody sends requests that are made to cost as much as they can.

One fleet, one worker: the neighbour's model and the others share the device process. Each kind is
sent for a while by a process of its own, one after the other, beside fifty requests a second of the
neighbour.
"""

import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import quantiles
from time import perf_counter

from batchfleet.models.importing import minilm_draft
from benchmarks.processes import Conversation
from tests.support.fleet import draft_of, limits

from .costly_caller import COSTLY, ENCODING, FAILING, KINDS, NOTHING
from .own_fleet import NAMESPACE, own_fleet
from .pause import pause_s
from .promise import at_most, attempt, equals
from .steady_load import OK, LoadPlan, SteadyLoad
from .up import minilm_sources

NEIGHBOUR = "neighbour"
RATE_PER_S = 50.0
SPAN_S, QUICK_SPAN_S = 24.0, 6.0
# Of the worker's log, for thousands of requests that fail.
LOG_BYTES = 100_000
_CALLER = "tests.acceptance.measuring.costly_caller"
_EACH_S = 0.5
_TURNS = 4
# The first requests of a client wait for its connections.
_CONNECTED_S = 1.0
_ROUND_S = 60.0
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
    with _trickling() as root, _served(root) as fleet:
        with Conversation(_CALLER, fleet.url, NAMESPACE, root) as caller:
            caller.start(_ROUND_S)
            found = [
                promise
                for kind in KINDS
                if kind != NOTHING
                for promise in attempt(kind, lambda kind=kind: _beside(fleet, kind, caller, span_s))
            ]
        size = fleet.workers[0].log_path.stat().st_size
        return [*found, at_most("X7: bytes of the worker's log", size, LOG_BYTES)]


@contextmanager
def _served(root):
    """A fleet that serves the neighbour, and what costs."""
    costly = draft_of("echo", COSTLY, limits=limits(input_prefixes=(root,)))
    with own_fleet(draft_of("echo", NEIGHBOUR), costly, allow_code="own") as fleet:
        fleet.deploy_code(_CLASS, FAILING)
        fleet.deploy(replace(minilm_draft(), model=ENCODING), minilm_sources())
        for model in (FAILING, ENCODING):
            fleet.wait_until_served(model)
        yield fleet


def _beside(fleet, kind, caller, span_s):
    """In turns with nothing, since the machine is not equally fast all the time."""
    waits_ms, ended = {NOTHING: [], kind: []}, set()
    for _ in range(_TURNS):
        for sent, waited_ms in waits_ms.items():
            requests = _requests(
                fleet, span_s / _TURNS, lambda sent=sent: caller.ask(sent, _ROUND_S)
            )
            waited_ms.extend((one.over_at - one.sent_at) * 1000 for one in requests)
            ended |= {one.outcome for one in requests}
    quiet_ms, p99_ms = (quantiles(waited_ms, n=100)[98] for waited_ms in waits_ms.values())
    return [
        equals(f"{kind}: the neighbour's answers", ", ".join(sorted(ended)), OK),
        at_most(f"… its p99 ÷ {quiet_ms:.1f} ms when quiet", p99_ms / quiet_ms, 2),
    ]


def _requests(fleet, span_s, provoke):
    """The neighbour's requests while something is done again and again."""
    plan = LoadPlan(model=NEIGHBOUR, rate_per_s=RATE_PER_S, timeout_ms=30_000)
    with SteadyLoad(fleet, plan) as load:
        pause_s(_CONNECTED_S)
        began = perf_counter()
        while perf_counter() < began + span_s:
            provoke()
            pause_s(_EACH_S)
        load.stop()
        return [one for one in load.requests if one.sent_at >= began]
