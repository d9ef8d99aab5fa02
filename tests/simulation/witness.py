"""The invariants: a witness that sees every command carried out and every run begun."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from batchfleet.broker import fleet
from batchfleet.broker.errors import RefusedError
from batchfleet.ops.rolls.state import ENDS, TRANSITIONS, read_state
from batchfleet.testing.twin.database import Hash, SortedSet
from batchfleet.testing.twin.server import as_sent
from batchfleet.testing.twin.streams import Stream
from batchfleet.wire.announcements import READY
from batchfleet.wire.deployment import Deployment
from batchfleet.wire.errors import ErrorKind, SettingsError
from batchfleet.wire.reply import decode_reply

from .device import answer_to
from .options import KEYS, OTHERS, TENANT, VERSION

# A worker may be off by so much when it reads the server's clock.
_CLOCK_MS = 60.0
# A router has noticed by now that a version is served again.
_NOTICE_MS = 3_000.0
_ENDS_PROCESSES = ("crash", "crash_early", "hang", "hang_early")
_EXHAUSTED = ErrorKind.ATTEMPTS_EXHAUSTED.code
_DEATHS = {ErrorKind.POISON.code, ErrorKind.TIME_LIMIT.code, _EXHAUSTED}
_READS = frozenset(("SMEMBERS", "LRANGE", "GET", "INFO", "ZRANGE", "ZCARD", "HGETALL", "TIME"))
_MOVES_ENTRIES = frozenset(("take", "recover", "bury", "leave", "retire", "finish", "retry"))


_CHANGES_RECORD = frozenset(("configure", "offer", "withdraw", "deploy", "mend"))


class ViolationError(AssertionError):
    """An invariant does not hold."""


@dataclass(eq=False)
class Story:
    """What is known of one request."""

    id: str
    texts: list
    kind: str
    timeout_ms: int
    accepted: int = 0
    reply: bytes | None = None
    ended_ms: float = 0.0
    said: set = field(default_factory=set)  # codes that the model ended it with
    losses: int = 0  # of a device process it was in, or of the worker that held it
    again: int = 0  # how often it was parked to run again
    retries: int = 0
    delay_ms: int = 0
    is_cancelled: bool = False
    starts: Counter = field(default_factory=Counter)  # of each row
    is_over: bool = False  # for its caller
    tell_caller: Callable = bool  # called once it has ended; its caller sets it


class Witness:
    """Sees everything and ends the simulation at the first thing that must not be."""

    def __init__(self, world, server, options):
        self.faults_are_on = True
        self.stories = {}
        self._world = world
        self._server = server
        self._options = options
        self._database = server.twin._database
        self._open = {}  # member → deadline
        self._beats = {}  # worker → when the server last heard of it
        self._ready_since_ms = {}  # worker, version → when it said so
        self._roll = None  # the state of the last one
        self._looks = {}  # process → when it last read the counters of beats
        self._owners = {}
        self._streams = [name.encode() for name in work_streams(options)]
        self._after = {
            "accept": self._after_accept,
            "take": self._after_take,
            "finish": self._after_finish,
            "retry": self._after_retry,
            "join": self._after_beat,
            "beat": self._after_beat,
            "recover": self._after_recover,
            "bury": self._after_bury,
            "leave": self._after_leave,
        }

    def violated(self, text):
        """End the simulation."""
        self._world.fail(ViolationError(text))

    # State of the server.

    def due(self):
        """Open requests and their deadlines, as the server has them."""
        return self._database.find(KEYS.due.encode(), SortedSet) or {}

    def living(self):
        """Workers that count as alive."""
        return self._database.find(KEYS.workers.encode(), SortedSet) or {}

    def lost(self):
        """Workers that are to be recovered."""
        return self._database.find(KEYS.lost.encode(), set) or set()

    def pending(self):
        """(stream, entry id) → who has it, of all work."""
        owners = {}
        for name in self._streams:
            stream = self._database.find(name, Stream)
            if stream is None:
                continue  # of a version that is not offered
            for entry_id, held in stream.groups[b"worker"].pending.items():
                owners[name, entry_id] = held.consumer
        return owners

    def entries(self):
        """How many entries lie in each stream that is there."""
        names = [*self._streams, KEYS.ingress(TENANT).encode(), KEYS.parked.encode()]
        return {name: len(self._database.find(name, Stream) or ()) for name in names}

    def record(self):
        """The deploy hash."""
        return self._database.find(KEYS.deploy.encode(), Hash) or Hash()

    def offered(self):
        """The versions that workers load."""
        names = (name.decode() for name in self.record())
        return {name.removeprefix("version:") for name in names if name.startswith("version:")}

    def intake(self):
        """What the deploy record says of the model's intake."""
        return self.record().get(b"intake")

    # Commands.

    def before(self, name):
        """A command is about to be carried out."""
        if name in ("finish", "retry", "bury", "leave"):
            self._owners = self.pending()

    def after(self, process, name, command, raw):
        """A command has been carried out."""
        if isinstance(raw, RefusedError):
            return
        after = self._after.get(name)
        if after is not None:
            parts = as_sent(command.parts)
            keys_end = 3 + int(parts[2])
            after(process, parts[keys_end:], raw)
            self._check_replies(parts[3:keys_end])
        if name in _MOVES_ENTRIES:
            self._check_owners()
        if name in _CHANGES_RECORD:
            self._check_record(name)
        if name == "ZRANGE":
            self._looks[process.name] = self._world.now_ms
        if name not in _READS and self.due().keys() != self._open.keys():
            self.violated(f"{name} has changed which requests are open")

    def _check_record(self, name):
        """The record can be followed, and its roll has gone where the table allows it to go."""
        record, before = self.record(), self._roll
        try:
            Deployment.from_hash(KEYS.model, record)
            self._roll = after = read_state(KEYS.model, record.get(b"roll", b""))
        except SettingsError as error:
            self.violated(f"{name} has left a record that nobody can follow: {error}")
        if after is None or before in (None, after):
            return
        if before.roll != after.roll:
            is_allowed = before.has_ended and after.phase not in ENDS
        else:
            is_allowed = after.phase in _within_two(before.phase)
        if not is_allowed:
            self.violated(f"{name} has moved a roll from {before.phase} to {after.phase}")

    def _after_accept(self, _process, args, _raw):
        due = self.due()
        for one in due.keys() - self._open.keys():
            story = self._story(one)
            if self.intake() == b"refuse":
                self.violated(f"{story.id} was accepted by a record that is over")
            story.accepted += 1
            if story.accepted > 1:
                self.violated(f"{story.id} was accepted twice")
            if story.reply is not None:
                self.violated(f"{story.id} was accepted after its end")
        if len(due) > int(args[0]) and len(due) > len(self._open):
            self.violated(f"{len(due)} requests are open; the backlog is {int(args[0])}")
        self._open = dict(due)

    def _after_take(self, _process, args, raw):
        if args[0] not in self.living():
            self.violated(f"{args[0]} is not among the living and was handed work")
        if raw and self.intake() == b"hold":
            self.violated(f"{args[0]} was handed work that is on hold")
        for _, entries in raw:
            for _, fields in entries:
                if fields[3] + b":" + fields[1] not in self._open:
                    self.violated(f"{fields[1]} is closed and was handed out")

    def _after_recover(self, _process, args, raw):
        if raw and self.intake() == b"hold":
            self.violated(f"{args[0]} took over work that is on hold")

    def _after_finish(self, _process, args, raw):
        due = self.due()
        gone = self._open.keys() - due.keys()
        if len(gone) != raw.count(b"ANSWERED"):
            self.violated(f"{raw} ended {len(gone)} requests")
        for one in sorted(gone):
            self._end(self._story(one), self._open[one])
        self._open = dict(due)
        self._check_settled(args[0])

    def _after_retry(self, _process, args, raw):
        self._check_settled(args[0])
        if raw == b"PARKED":
            self._story(args[2]).again += 1

    def _check_settled(self, worker):
        """Only its own entries has a worker ended."""
        owners = self.pending()
        for (stream, entry_id), owner in self._owners.items():
            if owner != worker and (stream, entry_id) not in owners:
                self.violated(f"{worker} has ended {entry_id} of {owner}")

    def _end(self, story, deadline_ms):
        items = self._reply_items(KEYS.reply(TENANT, story.id).encode())
        if len(items) != 1:
            self.violated(f"{story.id} ended with {len(items)} terminal items")
        story.reply, story.ended_ms = items[0], self._world.now_ms
        story.tell_caller()
        reply = decode_reply(story.reply)
        self._world.tell("server", f"{story.id} ends: {reply.status} {reply.error or ''}")
        if (reply.id, reply.tenant) != (story.id, TENANT):
            self.violated(f"{story.id} got the reply of {reply.tenant}:{reply.id}")
        if reply.error is None:
            answers = [answer_to(text, reply.version) for text in story.texts]
            if reply.outputs != {"text": answers}:
                self.violated(f"{story.id} got another answer than {answers}: {reply.outputs}")
            if reply.version not in self.offered():
                self.violated(f"{reply.version} answered {story.id} and is not offered")
        else:
            self._check_error(story, reply, deadline_ms)

    def _check_error(self, story, reply, deadline_ms):
        code, version = reply.error["code"], reply.version or self.record().get(b"stable", b"")
        if code in story.said:
            return
        if code == ErrorKind.CANCELLED.code:
            if not story.is_cancelled:
                self.violated(f"{story.id} was cancelled by nobody")
        elif code == ErrorKind.DEADLINE_EXCEEDED.code:
            early_ms = deadline_ms - self._server.clock.wall_ms()
            if early_ms > _CLOCK_MS:
                self.violated(f"{story.id} was given up {early_ms:.0f} ms before its deadline")
        elif code == _EXHAUSTED and story.again and story.said:
            pass
        elif code in _DEATHS:
            if story.kind not in _ENDS_PROCESSES and story.losses < 2:
                self.violated(f"{story.id} ended with {code} after {story.losses} losses")
        elif code != ErrorKind.NO_WORKER.code or self._is_well_served(version):
            self.violated(f"{story.id} ended with {code}, for no reason")

    def _is_well_served(self, version):
        """Whether a version has been served for longer than a router takes to notice."""
        now_ms = self._world.now_ms
        if self.faults_are_on or now_ms - self._server.pauses.last_end_ms(now_ms, 0) < _NOTICE_MS:
            return False
        old_ms = 2 * self._options.settings.beat_ms
        ready_ms = [
            self._ready_since_ms.get((worker, version), inf)
            for worker in self.living()
            if now_ms - self._beats[worker] < old_ms
        ]
        return now_ms - min(ready_ms, default=inf) > _NOTICE_MS

    def _check_replies(self, keys):
        for key in keys:
            if b":re:" not in key:
                continue
            items = self._reply_items(key)
            story = self.stories[key.rpartition(b":")[2].decode()]
            if len(items) > 1 or (story.reply is not None and items not in ([], [story.reply])):
                self.violated(f"the reply of {story.id} has changed")

    def _reply_items(self, key):
        return self._database.find(key, list) or []

    def _check_owners(self):
        known = {*self.living(), *self.lost()}
        for (stream, entry_id), owner in self.pending().items():
            if owner not in known:
                self.violated(f"{stream} {entry_id} is pending for {owner}, whom nobody recovers")

    def check_story(self, story):
        """The reply of a request, if it is there, is the one that was written."""
        self._check_replies([KEYS.reply(TENANT, story.id).encode()])

    def _story(self, one):
        return self.stories[one.rpartition(b":")[2].decode()]

    # Workers.

    def _after_beat(self, _process, args, raw):
        if raw:
            worker, now_ms = args[0], self._world.now_ms
            said = dict(zip(args[2::2], args[3::2], strict=True))
            gone_ms = 3 * self._options.lease_ms  # what it has announced lives for so long
            was_silent = now_ms - self._beats.get(worker, 0.0) > gone_ms
            lanes = json.loads(said[b"lanes"])
            for version in (VERSION, *OTHERS):
                is_ready = lanes.get(version, {}).get("state") == READY
                if was_silent or not is_ready:
                    self._ready_since_ms[worker, version] = inf
                if is_ready:
                    since_ms = self._ready_since_ms.get((worker, version), inf)
                    self._ready_since_ms[worker, version] = min(now_ms, since_ms)
            self._beats[worker] = now_ms

    def _after_bury(self, process, args, raw):
        if not raw:
            return
        worker = args[0]
        looked_ms, least_ms = self._looks[process.name], 2 * self._options.settings.beat_ms
        ends = [one.pauses.last_end_ms(looked_ms, least_ms) for one in (process, self._server)]
        # The script looks at the counter once more.
        silent_ms = self._world.now_ms - max(self._beats[worker], *ends)
        self._world.tell(process.name, f"buries {worker.decode()}, silent for {silent_ms:.0f} ms")
        if silent_ms < self._options.lease_ms:
            self.violated(f"{worker} was buried after {silent_ms:.0f} ms of silence")
        self._lose_worker(worker)

    def _after_leave(self, _process, args, raw):
        if raw:
            self._lose_worker(args[0])

    def _lose_worker(self, worker):
        held = [place for place, owner in self._owners.items() if owner == worker]
        for stream, entry_id in held:
            fields = self._database.find(stream, Stream).get(entry_id)
            if fields is not None:
                self._story(fields[1]).losses += 1

    # Device processes.

    def something_starts(self, process, worker, message):
        """A worker has its device process begin something."""
        beat_ms = self._beats.get(worker.encode(), 0.0)
        old_ms = self._world.now_ms - beat_ms
        if old_ms > self._options.lease_ms * 2 / 3:
            kind = type(message).__name__
            self.violated(f"{worker} starts {kind} though its beat is {old_ms:.0f} ms old")
        process.check_alive()

    def run_started(self, worker, rows):
        """Rows run as one batch."""
        self._world.tell(worker, f"runs {rows}")
        if worker.encode() not in self.living():
            self.violated(f"{worker} is not among the living and runs {rows}")
        for name, at in rows:
            story = self.stories[name]
            story.starts[at] += 1
            reasons = 1 + story.losses + story.again
            if story.starts[at] > reasons:
                self.violated(f"row {at} of {name} ran {story.starts[at]} times, not {reasons}")

    def device_died(self, names):
        """A device process ended with these requests inside."""
        for name in names:
            self.stories[name].losses += 1

    def model_said(self, name, code):
        """The model ended a request with an error."""
        self.stories[name].said.add(code)

    # The end.

    def check_rest(self):
        """Nothing is left of what has ended, but what may stay."""
        for name, length in self.entries().items():
            if length:
                self.violated(f"{length} entries are left in {name.decode()}")
        for what, rest in (("due", self.due()), ("lost", self.lost()), ("pending", self.pending())):
            if rest:
                self.violated(f"{what} is not empty: {sorted(rest)}")
        for story in self.stories.values():
            if story.accepted and story.reply is None:
                self.violated(f"{story.id} was accepted and never answered")

    def is_at_rest(self):
        """Whether nothing is left to be done."""
        is_busy = self.due() or self.lost() or self.pending() or any(self.entries().values())
        return not is_busy and all(story.is_over for story in self.stories.values())

    def keys_for_ever(self):
        """Names of the keys without a time to live."""
        slots = list(self._database._slots)
        return {
            key.decode()
            for key in slots
            if self._database.exists(key) and self._database.expires_ms(key) is None
        }


def _within_two(phase):
    """Phases after one event, and after a second one, where nothing has to be waited for."""
    first = set(TRANSITIONS[phase].values())
    return first | {after for one in first for after in TRANSITIONS[one].values()}


def work_streams(options):
    """The work streams of all versions that there may be."""
    return [
        stream
        for version in (VERSION, *OTHERS)
        for stream in fleet.queue_streams(KEYS, options.record_of(version))
    ]


def new_story(request_id, kind, lengths, timeout_ms):
    """A request with rows of these lengths; its texts say what is wrong with it."""
    texts = [f"{request_id}/{kind}/{length}/{at}" for at, length in enumerate(lengths)]
    return Story(request_id, texts, kind, timeout_ms)


def inputs_of(story):
    """The body of a request."""
    return json.dumps({"text": story.texts}).encode()
