"""A device process in virtual time, behind the connection that a worker has to a real one."""

import json
from dataclasses import dataclass, field
from itertools import count

from batchfleet.consumer.link.frames import ChannelClosedError
from batchfleet.consumer.link.protocol import (
    Answer,
    Answers,
    Done,
    Drop,
    Failure,
    Fetch,
    Hello,
    Load,
    Prepare,
    PreparedItem,
    PreparedRows,
    PrepareRun,
    Ready,
    Refused,
    Run,
    Stop,
)
from batchfleet.wire.errors import ErrorKind

from .options import UNLOADABLE

_CURVE = [(1, 16, 10.0), (8, 16, 20.0), (1, 64, 20.0), (8, 64, 50.0)]
_LATE_ANSWER_SHARE = 0.3

# What is wrong with a request; `fine` is not.
CULPRITS = ("raise", "flaky", "bad_inputs", "crash", "crash_early", "hang", "hang_early")


def answer_to(text, version):
    """What a version makes of a text."""
    return f"{version}({text})"


def kind_of_text(text):
    """What is wrong with a text, which says so itself."""
    return text.split("/")[1]


@dataclass(eq=False)
class _Request:
    """A request inside: its texts, and the rows that have not run yet."""

    number: int
    name: str
    texts: list
    version: str
    left: set = field(default_factory=set)

    @property
    def lengths(self):
        return [int(text.split("/")[2]) for text in self.texts]

    @property
    def kind(self):
        return kind_of_text(self.texts[0])


class SimulatedDevice:
    """A `Link`. It runs batches one after the other and preprocesses beside them."""

    _pids = count(1)

    def __init__(self, world, process, witness, options):
        self.kill_reason = ""
        self.worker = process.worker_name
        self._world = world
        self._process = process
        self._witness = witness
        self._limits = options.record.limits
        self._versions = {}  # lane → version
        self._requests = {}
        self._unsaid = set()  # names of those whose answers are under way
        self._due = []  # (ms, message), in the order of their time
        self._busy_until_ms = world.now_ms
        self._loading_until_ms = world.now_ms
        self._cause = ""  # of its death
        self._thread = world.current
        self.pid = len(process.devices) + 1
        process.devices.append(self)
        self._say(world.chance.uniform(1, 50), Hello(1, self.pid, "3"))
        self._fate(options.device_crash_every_ms)

    def _fate(self, mean_ms):
        after_ms = self._world.chance.expovariate(1 / mean_ms)

        def crash():
            if self._witness.faults_are_on:
                self.crash("it crashed by chance")

        self._world.after(after_ms, crash)

    # What a worker sees of it.

    def send(self, message):
        if self._cause:
            raise ChannelClosedError
        if isinstance(message, Prepare | PrepareRun | Run):
            self._witness.something_starts(self._process, self.worker, message)
        match message:
            case Load():
                self._load(message)
            case Prepare() | Fetch():
                self._prepare(message.lane, message.items)
            case Run():
                self._run(message.batch, message.rows, [])
            case PrepareRun():
                self._prepare_and_run(message)
            case Drop():
                for number in message.requests:
                    self._requests.pop(number, None)
            case Stop():
                self._cause = "exit code 0"
            case _:
                pass  # Adjust, Unload: nothing that shows

    def _load(self, message):
        if message.version == UNLOADABLE:
            self._say(self._occupy(1.0), Refused(message.lane, "these weights do not fit"))
            return
        self._versions[message.lane] = message.version
        load_ms = self._world.chance.uniform(20, 400)
        done_ms = self._occupy(load_ms)
        self._loading_until_ms = self._world.now_ms + done_ms
        self._say(done_ms, Ready(message.lane, _CURVE, "a" * 16, 0, load_ms, [], 0))

    def receive(self, timeout_s):
        now_ms = self._world.now_ms
        messages = [message for at_ms, message in self._due if at_ms <= now_ms]
        self._due = self._due[len(messages) :]
        if not messages:
            if self._cause:
                raise ChannelClosedError
            self._thread.idle(1000 * timeout_s, self)
        return messages

    def wake(self):
        self._thread.wake()

    def kill(self, reason):
        self.kill_reason = self.kill_reason or reason
        self.die(reason or "killed")

    def look(self):
        """It starts no processes."""

    def end(self, _patience_s, _why=""):
        self.die("it was ended")
        return self.kill_reason or self._cause

    # What happens inside.

    def crash(self, cause):
        """It is ended from outside; not while it loads, which would be the version's fault."""
        left_ms = self._loading_until_ms - self._world.now_ms
        if left_ms > 0:
            self._world.after(left_ms, lambda: self.crash(cause))
        else:
            self.die(cause)

    def die(self, cause):
        """It ends now; what it has not said yet, it never says."""
        if self._cause:
            return
        self._cause = cause
        now_ms = self._world.now_ms
        self._due = [(at_ms, message) for at_ms, message in self._due if at_ms <= now_ms]
        names = [*(request.name for request in self._requests.values()), *sorted(self._unsaid)]
        self._world.tell(self.worker, f"device {self.pid} ends: {cause}; inside {names}")
        self._witness.device_died(names)
        self._thread.wake()

    @property
    def is_alive(self):
        return not self._cause

    def _say(self, after_ms, message):
        at_ms = self._world.now_ms + after_ms
        self._due.append((at_ms, message))
        self._due.sort(key=lambda one: one[0])
        self._world.after(after_ms, self._thread.wake)

    def _occupy(self, duration_ms):
        """Use the device; returns how long it takes from now until this is done."""
        now_ms = self._world.now_ms
        self._busy_until_ms = max(now_ms, self._busy_until_ms) + duration_ms
        return self._busy_until_ms - now_ms

    def _take_in(self, lane, items):
        """Requests that can be run, and failures of those that cannot."""
        taken, failures = [], []
        for item in items:
            texts = json.loads(item.inputs)["text"]
            version = self._versions[lane]
            request = _Request(item.request, texts[0].split("/")[0], texts, version)
            if request.kind == "bad_inputs":
                failures.append(self._failure(request, ErrorKind.BAD_INPUTS))
                continue
            request.left = set(range(len(texts)))
            self._requests[item.request] = request
            taken.append(request)
        return taken, failures

    def _failure(self, request, kind):
        self._requests.pop(request.number, None)
        self._witness.model_said(request.name, kind.code)
        return Failure(request.number, kind.code, "as the input asked for", [])

    def _prepared(self, requests):
        return [
            PreparedItem(one.number, one.lengths, 0, 0.5, [0] * len(one.lengths))
            for one in requests
        ]

    def _prepare(self, lane, items):
        taken, failures = self._take_in(lane, items)
        duration_ms = self._world.chance.uniform(0.5, 5.0) * len(items)
        if any(one.kind == "crash_early" for one in taken):
            self._world.after(duration_ms, lambda: self.die("it crashed while preparing"))
        elif not any(one.kind == "hang_early" for one in taken):
            self._say(duration_ms, PreparedRows(self._prepared(taken), failures))

    def _prepare_and_run(self, message):
        taken, failures = self._take_in(message.lane, message.items)
        prepared = self._prepared(taken)
        rows = [(one.number, at) for one in taken for at in range(len(one.texts))]
        limits = self._limits
        longest = max((length for one in taken for length in one.lengths), default=0)
        tokens = longest * len(rows)
        too_many = len(rows) > limits.max_batch_size
        if too_many or tokens > (limits.max_batch_tokens or tokens):
            self._say(self._occupy(1.0), Done(message.batch, [], 0.0, prepared, failures, []))
            return
        self._run(message.batch, rows, prepared, failures)

    def _run(self, batch, rows, prepared, failures=()):
        known = [(number, at) for number, at in rows if number in self._requests]
        requests = list({number: self._requests[number] for number, _ in known}.values())
        self._witness.run_started(self.worker, [(self._requests[n].name, at) for n, at in known])
        longest = max((self._requests[n].lengths[at] for n, at in known), default=1)
        duration_ms = self._world.chance.uniform(0.5, 1.5) * (5 + 0.1 * len(known) * longest)
        kinds = {request.kind for request in requests}
        if "crash" in kinds or "crash_early" in kinds:
            self._world.after(self._occupy(duration_ms), lambda: self.die("it crashed on a row"))
        elif "hang" in kinds or "hang_early" in kinds:
            self._busy_until_ms = float("inf")
        else:
            done_ms = self._occupy(duration_ms)
            finish = lambda: self._finish(batch, known, prepared, list(failures), duration_ms)  # noqa: E731
            self._world.after(done_ms, finish)

    def _finish(self, batch, rows, prepared, failures, predict_ms):
        if self._cause:
            return
        answers, late, names = [], [], []
        for number, at in rows:
            request = self._requests.get(number)
            if request is None:
                continue
            request.left.discard(at)
            if request.kind == "raise" or (request.kind == "flaky" and self._is_moody()):
                failures.append(self._failure(request, ErrorKind.MODEL_ERROR))
            elif not request.left:
                if self._world.chance.random() < _LATE_ANSWER_SHARE:
                    late.append(self._answer(request))
                    names.append(request.name)
                else:
                    answers.append(self._answer(request))
        self._say(0.0, Done(batch, rows, predict_ms, prepared, failures, answers))
        if late:
            self._answer_later(late, names)

    def _answer_later(self, answers, names):
        self._unsaid.update(names)
        self._say(after_ms := self._world.chance.uniform(1, 100), Answers(answers, []))
        self._world.after(after_ms, lambda: self._unsaid.difference_update(names))

    def _is_moody(self):
        return self._world.chance.random() < 0.5

    def _answer(self, request):
        self._requests.pop(request.number)
        texts = [answer_to(text, request.version) for text in request.texts]
        outputs = json.dumps({"text": texts}).encode()
        return Answer(request.number, outputs, 0.1)
