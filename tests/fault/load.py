"""The caller's side of a run: submits, collects the answers, and tells all of it in the history.

It talks to the server directly, whatever is done to the fleet's connections, and asks again by id
where the server does not answer, as any client may.
"""

import hashlib
import json
import threading
from itertools import count
from time import monotonic

import redis

from batchfleet.models.runtimes.echo import echo_digest
from batchfleet.wire.reply import decode_reply

from .checker import LATE_MS
from .provoking import NotPlayedError

TIMEOUT_MS = 15_000
TENANT = "default"
_RETRY_S = 0.05
_LOOK_S = 0.01
_RETRY_FOR_S = 30.0
_SLACK_S = 1.0


class Load:
    """Requests of one run; their ids begin with its name."""

    def __init__(self, url, keys, history, run):
        self.server = redis.Redis.from_url(url, socket_timeout=_RETRY_FOR_S, retry=None)
        self.keys = keys
        self.history = history
        self.submitted = []
        self.refused = 0  # by the server itself, so that they never were
        self._run = run
        self._numbers = count()
        self._answered = set()
        self._open = {}  # id → monotonic second after which its answer would be late
        self._lock = threading.Lock()  # guards _open and _answered
        self._over = threading.Event()
        self._reader = redis.Redis.from_url(url, socket_timeout=_RETRY_FOR_S, retry=None)
        self._thread = threading.Thread(target=self._watch, name="answers", daemon=True)
        self._thread.start()
        self._pause = threading.Event()
        self._announced = []

    # Submitting.

    def submit(self, number=1, switch="", **fields):
        """Submit so many requests; returns their ids. See `submit_one`."""
        ids = [f"{self._run}-{next(self._numbers)}" for _ in range(number)]
        for request_id in ids:
            self.submit_one(request_id, switch, **fields)
        return ids

    def submit_one(self, request_id, switch="", expected=("ok",), timeout_ms=TIMEOUT_MS, **fields):
        """Submit a request under an id, and tell what may become of it.

        `switch` goes before the text, for the echo model; `expected` are names of errors, or `ok`;
        `fields` are further ones of the entry.
        """
        text = _text(switch, request_id)
        entry = {
            "id": request_id,
            "inputs": json.dumps({"text": [text]}),
            "timeout_ms": timeout_ms,
            **fields,
        }
        stream = self.keys.ingress(TENANT)
        try:
            self._patiently(lambda: self.server.xadd(stream, entry, nomkstream=True))
        except redis.ResponseError:
            self.refused += 1
            return
        self._note(request_id, text, expected, timeout_ms)

    def _note(self, request_id, text, expected, timeout_ms):
        self.history.tell(
            "submitted",
            id=request_id,
            digest=echo_digest({"text": text}, "1"),
            expected=list(expected),
            timeout_ms=timeout_ms,
        )
        self.submitted.append(request_id)
        with self._lock:
            if request_id not in self._answered:
                late_s = monotonic() + (timeout_ms + LATE_MS) / 1000 + _SLACK_S
                self._open.setdefault(request_id, late_s)

    def submit_until(self, condition, what, pace_ms=8, most=400, **fields):
        """Submit one after the other until `condition()` holds."""
        for _ in range(most):
            if condition():
                return
            self.submit(1, **fields)
            self._pause.wait(pace_ms / 1000)
        raise NotPlayedError(f"after {most} requests still not: {what}")

    def announce(self, number, switch):
        """What another caller is to submit, as JSON: id, text and time-out of each."""
        ids = [f"{self._run}-{next(self._numbers)}" for _ in range(number)]
        self._announced = [(name, _text(switch, name), TIMEOUT_MS) for name in ids]
        return json.dumps(self._announced)

    def note_announced(self):
        """The other caller has submitted what it was told to."""
        for name, text, timeout_ms in self._announced:
            self._note(name, text, ("ok",), timeout_ms)

    def forget(self):
        """Wait no more for what is open: the server was made to forget it."""
        with self._lock:
            self._open.clear()

    def pause(self, duration_s=_RETRY_S):
        """Let a moment pass between two looks."""
        self._pause.wait(duration_s)

    def _patiently(self, ask):
        """The server's answer, asked for again while it gives none."""
        give_up = monotonic() + _RETRY_FOR_S
        while True:
            try:
                return ask()
            except (redis.ConnectionError, redis.TimeoutError):
                if monotonic() > give_up:
                    raise
                self._pause.wait(_RETRY_S)

    # Collecting.

    def _watch(self):
        """Look for answers all the time, so that each is told of when it is there."""
        while not self._over.wait(_LOOK_S):
            with self._lock:
                names = list(self._open)
            if not names:
                continue
            try:
                answered = self._read(self._reader, names)
            except redis.RedisError:
                continue  # the server is away, or says so: it is asked again in a moment
            with self._lock:
                for name, items in zip(names, answered, strict=True):
                    if items and name in self._open:
                        self._tell(name, items)
                        self._answered.add(name)
                        del self._open[name]

    def collect(self):
        """Wait for all answers. What is missing when it would be late is waited for no more."""
        while self._open:
            now = monotonic()
            with self._lock:
                for name in [name for name, at in self._open.items() if at < now]:
                    del self._open[name]
            self._over.wait(_LOOK_S)

    def close(self):
        self._over.set()
        self._thread.join(_RETRY_FOR_S)
        self._reader.close()
        self.server.close()

    def _read(self, server, names):
        with server.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.lrange(self.keys.reply(TENANT, name), 0, -1)
            return pipe.execute()

    def reread(self):
        """Read once more whatever lies under this run's reply keys; tell of each."""
        found = set(self._patiently(self._names_with_reply))
        names = [*dict.fromkeys(self.submitted), *sorted(found - set(self.submitted))]
        answered = self._patiently(lambda: self._read(self.server, names)) if names else []
        for name, items in zip(names, answered, strict=True):
            if items or name in self._answered:
                self._tell(name, items)

    def _names_with_reply(self):
        prefix = self.keys.reply(TENANT, "")
        pattern = f"{prefix}{self._run}-*".replace("[", "\\[")
        keys = self.server.scan_iter(match=pattern, count=1000)
        return [key.decode().removeprefix(prefix) for key in keys]

    def _tell(self, request_id, items):
        told = {"outcome": "", "digest": "", "body": ""}
        if items:
            reply = decode_reply(items[0])
            told["body"] = hashlib.sha256(items[0]).hexdigest()[:16]
            told["outcome"] = reply.status if reply.error is None else reply.error["name"]
            if reply.outputs is not None:
                found = [one["data"] for one in reply.outputs if one["name"] == "digest"]
                told["digest"] = found[0][0]
        self.history.tell("replied", id=request_id, items=len(items), **told)


def _text(switch, request_id):
    """What the model tells in the history; it spells a switch first, where there is one."""
    return f"{switch} id={request_id}"
