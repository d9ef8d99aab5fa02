"""What is done to one model, and how its neighbours fare: requests to them, all the time."""

import json
import secrets
import threading
from dataclasses import dataclass, field
from time import monotonic

import redis

from batchfleet.broker import fleet as commands
from batchfleet.wire.keys import DEFAULT_TENANT, PRIORITIES, models_key
from batchfleet.wire.reply import decode_reply

from .fleet import until

DEADLINE_MS = 1000
DELAY_MS = 500
# A sweep every tenth of a second; the rest is for a machine that is busy.
LATE_MS = 1000.0
_EVERY_S = 0.1
_LOOK_S = 0.005
_PATIENCE_S = 5.0
_LOST_S = 0.5
FOREIGN_VALUE = b"foreign"


def keys_of_kind(keys, kind):
    """The keys of a model by the name of their kind; the list of all models is one as well."""
    many = {
        "models": [models_key(keys.namespace)],
        "in": [keys.ingress(DEFAULT_TENANT)],
        "q": [keys.queue("1", priority, 0) for priority in PRIORITIES],
    }
    return many.get(kind) or [getattr(keys, kind)]


def put_foreign(server, keys):
    """Put something of the wrong type in the place of keys, at once."""
    with server.pipeline(transaction=True) as pipe:
        for key in keys:
            pipe.delete(key).set(key, FOREIGN_VALUE)
        pipe.execute()


def is_served(fleet, model):
    """Whether a new request is run; one that gets lost is not waited for."""
    entry = {"id": secrets.token_hex(8), "inputs": json.dumps({"text": ["x"]})}
    keys = fleet.keys(model)
    try:
        if fleet.server.xadd(keys.ingress(DEFAULT_TENANT), entry, nomkstream=True) is None:
            return False
        key = keys.reply(DEFAULT_TENANT, entry["id"])
        raw = fleet.server.blmove(key, key, _LOST_S, "LEFT", "LEFT")
    except (redis.ConnectionError, redis.ResponseError):
        return False
    return raw is not None and decode_reply(raw).status == "ok"


def wait_healed(fleet, models):
    """Wait until new requests to all models are answered; returns how many seconds it took."""
    began_s = monotonic()
    for model in models:
        until(lambda model=model: is_served(fleet, model), f"{model} is served again")
    return monotonic() - began_s


@dataclass
class Asked:
    """One request: when its answer is due (monotonic), what it must be, and how late it was."""

    id: str
    model: str
    kind: str
    due_s: float
    expected: str
    late_ms: float | None = None
    outcome: str = ""


@dataclass
class Neighbours:
    """Asks two models about ten times a second, from a thread of its own.

    `patient` is on hold: nothing of it is run, and its requests are answered at their deadline.
    Requests of `calm` are delayed, or to be run at once.
    """

    fleet: object
    patient: str
    calm: str
    asked: list = field(default_factory=list)

    def __enter__(self):
        hold = {"intake": b"hold"}
        self.fleet.executor.run(
            commands.configure(self.fleet.keys(self.patient), hold, [], secrets.token_hex(4))
        )
        # Workers notice within their `refresh_ms`.
        until(
            lambda: self.fleet.ask(self.patient, timeout_ms=200).status != "ok",
            f"{self.patient} is on hold",
        )
        self._server = redis.Redis.from_url(self.fleet.url, socket_timeout=_PATIENCE_S, retry=None)
        self._over = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._guarded, name="neighbours", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(2 * _PATIENCE_S)
        self._server.close()
        if self._failure is not None:
            raise self._failure

    def _guarded(self):
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised by whoever waits for this thread
            self._failure = error

    def _run(self):
        next_s = 0.0
        while not self._over.wait(_LOOK_S):
            if monotonic() >= next_s:
                next_s = monotonic() + _EVERY_S
                self._ask(self.patient, "deadline", "deadline_exceeded", timeout_ms=DEADLINE_MS)
                self._ask(self.calm, "delay", "ok", delay_ms=DELAY_MS)
                self._ask(self.calm, "plain", "ok")
            self._collect()
        give_up = monotonic() + _PATIENCE_S
        while self._open() and monotonic() < give_up:
            threading.Event().wait(_LOOK_S)
            self._collect()

    def _ask(self, model, kind, expected, **fields):
        request_id = secrets.token_hex(8)
        entry = {"id": request_id, "inputs": json.dumps({"text": [kind]}), **fields}
        stream = self.fleet.keys(model).ingress(DEFAULT_TENANT)
        assert self._server.xadd(stream, entry, nomkstream=True), f"{model} is gone"
        due_s = monotonic() + sum(fields.values()) / 1000
        self.asked.append(Asked(request_id, model, kind, due_s, expected))

    def _open(self):
        return [one for one in self.asked if one.late_ms is None]

    def _collect(self):
        waiting = self._open()
        with self._server.pipeline(transaction=False) as pipe:
            for one in waiting:
                pipe.lindex(self.fleet.keys(one.model).reply(DEFAULT_TENANT, one.id), 0)
            answers = pipe.execute()
        now_s = monotonic()
        for one, raw in zip(waiting, answers, strict=True):
            if raw is not None:
                reply = decode_reply(raw)
                one.late_ms = 1000 * (now_s - one.due_s)
                one.outcome = reply.status if reply.error is None else reply.error["name"]

    def check(self, late_ms=LATE_MS):
        """Every one got its answer in time; call it after the block."""
        assert {one.kind for one in self.asked} == {"deadline", "delay", "plain"}
        wrong = [one for one in self.asked if one.outcome != one.expected]
        assert not wrong, f"{len(wrong)} of {len(self.asked)}, first {wrong[0]}"
        late = [one for one in self.asked if one.late_ms > late_ms]
        assert not late, f"{len(late)} of {len(self.asked)}, first {late[0]}"
