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

TIMEOUT_MS = 15_000
TENANT = "default"
_RETRY_S = 0.05
_LOOK_S = 0.01
_RETRY_FOR_S = 30.0
_SLACK_S = 1.0


class Load:
    """Requests of one run; their ids begin with its name."""

    def __init__(self, server, keys, history, run):
        self.server = server
        self.keys = keys
        self.history = history
        self.submitted = []
        self.refused = 0  # by the server itself, so that they never were
        self._run = run
        self._numbers = count()
        self._answered = set()
        self._open = {}  # id → monotonic second after which its answer would be late
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
        self.submitted.append(request_id)
        self._open.setdefault(request_id, monotonic() + (timeout_ms + LATE_MS) / 1000 + _SLACK_S)
        self.history.tell(
            "submitted",
            id=request_id,
            digest=echo_digest({"text": text}, "1"),
            expected=list(expected),
            timeout_ms=timeout_ms,
        )

    def submit_until(self, condition, what, pace_ms=8, most=400, **fields):
        """Submit one after the other until `condition()` holds."""
        for _ in range(most):
            if condition():
                return
            self.submit(1, **fields)
            self._pause.wait(pace_ms / 1000)
        raise AssertionError(f"after {most} requests still not: {what}")

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

    def collect(self, least=None):
        """Wait for all answers, or for `least` of those that are open; tell of each.

        What is missing when it would be late is left open, and the checker finds it lost.
        """
        wanted = len(self._open) if least is None else min(least, len(self._open))
        found = 0
        while found < wanted and self._open:
            found += self._look()
            now = monotonic()
            overdue = [name for name, at in self._open.items() if at < now]
            for request_id in overdue:
                del self._open[request_id]
                wanted -= 1
            self._pause.wait(_LOOK_S)

    def _look(self):
        names = list(self._open)
        for name, items in zip(names, self._patiently(lambda: self._read(names)), strict=True):
            if items:
                self._tell(name, items)
                self._answered.add(name)
                del self._open[name]
        return len(names) - len(self._open)

    def _read(self, names):
        with self.server.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.lrange(self.keys.reply(TENANT, name), 0, -1)
            return pipe.execute()

    def reread(self):
        """Read once more whatever lies under this run's reply keys; tell of each."""
        found = set(self._patiently(self._names_with_reply))
        names = [*dict.fromkeys(self.submitted), *sorted(found - set(self.submitted))]
        answered = self._patiently(lambda: self._read(names)) if names else []
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
