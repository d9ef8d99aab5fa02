"""The device process: what its threads do with each message.

- The device thread owns the models: load, warm-up, predict, and answers that are cheap to make.
- The device thread while it is idle, else the main thread, receives messages and writes out what
  the socket could not take (`receive_turns.py`).
- Two threads beside it preprocess ahead of the device, and postprocess behind it.
- A few more fetch inputs that lie elsewhere, so that a slow place does not hold up the others,
  nor one tenant another.
"""

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from ...models.traces import with_own_frames
from ...service.clock import Clock
from ...service.lifecycle import guarded_thread
from ...wire.deployment import VersionRecord
from ...wire.errors import ProtocolError
from ..link.frames import FrameChannel
from ..link.protocol import (
    PROTOCOL_VERSION,
    Adjust,
    Answer,
    Answers,
    Begun,
    Done,
    Drop,
    Failure,
    Fetch,
    Hello,
    Item,
    Load,
    Message,
    Prepare,
    PreparedItem,
    PreparedRows,
    PrepareRun,
    Refused,
    Run,
    Stop,
    Unload,
)
from .answering import encode_answer, encode_together, output_bytes
from .device_memory import MEMORY_EVERY_MS, MemoryReport
from .faults import failure_of, merge_row_errors, raise_if_model_left, request_error
from .fetching import Fetcher, host_of
from .host import keep_room
from .kind_logger import KindLogger
from .load_pace import PaceBeside
from .loaded_models import LoadedModel, PreparedRequest, RequestBook, TakenRow, take_all
from .loading import collect_garbage, load_version, refusal
from .opened import Opener
from .preparing import prepare_all
from .receive_turns import ReceiveTurns
from .running import RowErrors, batch_of, give_back, keep_outputs, run_batch
from .thread_pool import FairQueue, JobsMax, ThreadPool

SIDE_THREADS = 2
# Lanes whose batches all take less: nobody needs to receive meanwhile.
QUICK_MS = 1.0
FETCH_THREADS = 8
FETCHES_MAX = JobsMax(of_tenant=6, of_host=4)
# Larger outputs are encoded beside the device thread, which has the next batch to start.
INLINE_BYTES_MAX = 256 * 1024
# Results of a long job are sent on this often, so that neither callers nor time limits wait for
# the whole of it.
FLUSH_MS = 5
# How long an exit waits for postprocessing and for the main process to read the last answers.
WIND_UP_MS = 10_000


T = TypeVar("T")


class DeviceProcess:
    """Serves one connection until `Stop`."""

    def __init__(
        self,
        channel: FrameChannel,
        open_files: Opener,
        clock: Clock,
        logger: Any,
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._channel = channel
        self._open_files = open_files
        self._clock = clock
        self._logger = logger
        self._faults = KindLogger(logger, clock)
        self._book = RequestBook()
        self._crashed = crashed
        self._turns = ReceiveTurns(self._receive, channel.wake)
        self._side = ThreadPool("side", SIDE_THREADS, crashed)
        self._fetches = FairQueue(FETCHES_MAX)
        self._fetchers = ThreadPool("fetch", FETCH_THREADS, crashed, self._fetches)
        self._fetcher = Fetcher(clock)
        self._device_thread = guarded_thread(
            "device", partial(self._turns.work, self._is_over), crashed
        )
        # Written by the device thread, read by all.
        self._loaded: dict[int, LoadedModel] = {}
        self._quick_lanes: set[int] = set()
        # Written by the thread that receives, read by all.
        self._stopping = False
        self._given_up = False
        # Set by the device thread when nothing more will be sent.
        self._wound_up_ms: float | None = None
        self._memory = MemoryReport(clock)
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Load: lambda message: self._on_device(self._load, message),
            Adjust: lambda message: self._on_device(self._adjust, message),
            Unload: self._unload,
            Prepare: self._expect,
            Fetch: self._expect_fetched,
            Run: lambda message: self._on_device(self._run, message, is_batch=True),
            PrepareRun: self._expect_run,
            Drop: self._drop,
            Stop: self._stop,
        }

    def serve(self) -> None:
        """Work until `Stop` has been carried out.

        Raises:
            ChannelClosedError: the main process is gone.
            ProtocolError: it sent something that a device process cannot be sent.
        """
        self._channel.send(Hello(PROTOCOL_VERSION, os.getpid(), platform.python_version()))
        self._side.start()
        self._fetchers.start()
        self._device_thread.start()
        self._turns.stand_in(self._is_over)

    def give_up(self) -> None:
        """Have all threads end after what they do now, where they do not end with a process."""
        self._stopping = self._given_up = True
        self._side.dismiss()
        self._fetchers.dismiss()

    def join(self) -> None:
        """Wait for the device thread; a model's code may block it forever."""
        if self._device_thread.ident is not None:
            self._device_thread.join()

    # The thread that receives.

    def _receive(self) -> None:
        for message in self._channel.receive(MEMORY_EVERY_MS / 1000):
            handler = self._handlers.get(type(message))
            if handler is None:
                raise ProtocolError(f"{type(message).__name__} was sent to a device process")
            if not self._stopping:
                handler(message)
        self._report()

    def _on_device(
        self, work: Callable[[Any], None], message: Any, *, is_batch: bool = False
    ) -> None:
        is_long = message.lane not in self._quick_lanes
        job = partial(self._batch if is_batch else self._unless_stopping, work, message)
        self._turns.submit(job, is_long=is_long, is_batch=is_batch)

    def _batch(self, work: Callable[[Any], None], message: Any) -> None:
        """Run a batch, perhaps between the parts of a load, which is not to blame for its end."""
        if not self._turns.is_between:
            self._unless_stopping(work, message)
            return
        self._channel.send(Begun(message.batch))
        try:
            self._unless_stopping(work, message)
        except BaseException as error:
            self._crashed(error)
            raise

    def _unless_stopping(self, work: Callable[[Any], None], message: Any) -> None:
        if not self._stopping:
            work(message)
            self._channel.require_open()  # not in a child that the model's code forked

    def _unload(self, message: Unload) -> None:
        self._book.drop_lane(message.lane)
        self._on_device(self._forget_lane, message)

    def _drop(self, message: Drop) -> None:
        self._book.drop(message.requests)

    def _expect(self, message: Prepare) -> None:
        self._book.expect(message.lane, (item.request for item in message.items))
        self._side.submit(partial(self._unless_stopping, self._prepare, message))

    def _expect_fetched(self, message: Fetch) -> None:
        self._book.expect(message.lane, (item.request for item in message.items))
        for item in message.items:
            fetch = message._replace(items=[item])
            host = host_of(item.inputs.decode(errors="replace"))
            job = partial(self._unless_stopping, self._fetch, fetch)
            self._fetches.put(job, message.tenant, host)

    def _expect_run(self, message: PrepareRun) -> None:
        self._book.expect(message.lane, (item.request for item in message.items))
        self._on_device(self._prepare_run, message, is_batch=True)

    def _stop(self, _: Stop) -> None:
        self._stopping = True
        self._turns.submit(self._wind_up, is_long=True)

    def _is_over(self) -> bool:
        if self._given_up:
            return True
        if self._wound_up_ms is None:
            return False
        overdue = self._clock.monotonic_ms() >= self._wound_up_ms + WIND_UP_MS
        return overdue or self._channel.waiting_bytes() == 0

    def _report(self) -> None:
        if self._memory.is_due():
            loggers = [loaded.logger for loaded in list(self._loaded.values())]
            for logger in (self._faults, *loggers):
                logger.log_counts()
            for said in self._memory.news():
                self._channel.send(said)

    # The device thread.

    def _wind_up(self) -> None:
        self._side.finish(WIND_UP_MS / 1000)
        self._wound_up_ms = self._clock.monotonic_ms()
        self._channel.wake()

    def _load(self, message: Load) -> None:
        model, version = message.model, message.version
        try:
            pace = PaceBeside(self._turns, message.slice_ms)
            loaded, ready = load_version(message, self._open_files, pace, self._clock, self._logger)
        except BaseException as error:  # a model may raise anything; it is refused for it
            keep_room()
            logger = self._logger.bind(model=model, version=version)
            raise_if_model_left(error, "load", logger)
            logger.exception("load_failed", exc_info=with_own_frames(error))
            self._channel.send(Refused(message.lane, refusal(message, error)))
            return
        keep_room()
        self._memory.note_load(message.device)
        self._loaded[message.lane] = loaded
        if ready.curve and max(ms for _, _, ms in ready.curve) < QUICK_MS:
            self._quick_lanes.add(message.lane)
        self._channel.send(ready)

    def _adjust(self, message: Adjust) -> None:
        loaded = self._loaded.get(message.lane)
        if loaded is not None:
            record = VersionRecord.from_wire(message.record, {})
            self._loaded[message.lane] = replace(loaded, record=record)

    def _forget_lane(self, message: Unload) -> None:
        self._quick_lanes.discard(message.lane)
        if self._loaded.pop(message.lane, None) is not None:
            collect_garbage()
            self._memory.note_unload()

    def _run(self, message: Run) -> None:
        loaded = self._loaded.get(message.lane)
        rows = self._book.take(message.lane, message.rows)
        if loaded is None or not rows:
            self._channel.send(Done(message.batch, [], 0.0, [], [], []))
            return
        self._run_rows(loaded, message.batch, rows, PreparedRows([], []))

    def _prepare_run(self, message: PrepareRun) -> None:
        requests, failures = self._prepare_items(message.lane, message.items)
        self._book.drop(failure.request for failure in failures)
        loaded = self._loaded.get(message.lane)
        lengths = [length for request in requests for length in request.lengths]
        kinds = [kind for request in requests for kind in request.kinds]
        if loaded is None or not loaded.fits_one_batch(lengths, kinds):
            kept = [request.report() for request in requests if self._book.add(request)]
            self._channel.send(Done(message.batch, [], 0.0, kept, failures, []))
            return
        rows = take_all(requests)
        prepared = PreparedRows([request.report() for request in requests], failures)
        self._run_rows(loaded, message.batch, rows, prepared)

    def _run_rows(
        self, loaded: LoadedModel, batch: int, rows: list[TakenRow], prepared: PreparedRows
    ) -> None:
        started_ms = self._clock.monotonic_ms()
        results = run_batch(loaded, batch_of(batch, rows))
        keep_room()
        predict_ms = self._clock.monotonic_ms() - started_ms
        touched, errors = give_back(rows, results)
        answerable = [
            request
            for request in touched.values()
            if not (request.missing or request.number in errors)
        ]
        inline = _is_cheap(loaded, answerable)
        keep_outputs([row for row in rows if row.request.missing or not inline], loaded, errors)
        complete, failures = self._end_requests(loaded, touched, errors)
        failures = prepared.failures + failures
        answers: list[Answer] = []
        if inline:
            answers = self._answer_inline(loaded, complete, failures)
        ran = [(row.request.number, row.place) for row in rows]
        self._channel.send(Done(batch, ran, predict_ms, prepared.items, failures, answers))
        if complete and not inline:
            self._side.submit(partial(self._answer_beside, loaded, complete))

    def _end_requests(
        self,
        loaded: LoadedModel,
        touched: Mapping[int, PreparedRequest],
        errors: Mapping[int, RowErrors],
    ) -> tuple[list[PreparedRequest], list[Failure]]:
        """Which requests of a batch are complete, and which have failed; both leave the book."""
        failures = [
            loaded.failure_of(number, merge_row_errors(row_errors))
            for number, row_errors in errors.items()
            if not touched[number].dropped
        ]
        complete = [
            request
            for number, request in touched.items()
            if request.missing == 0 and number not in errors and not request.dropped
        ]
        self._book.drop([*errors, *(request.number for request in complete)])
        return complete, failures

    # Threads beside the device thread (and the device thread, for what is small).

    def _prepare_items(
        self, lane_number: int, items: Sequence[Item]
    ) -> tuple[list[PreparedRequest], list[Failure]]:
        return prepare_all(self._loaded.get(lane_number), items, self._clock)

    def _prepare(self, message: Prepare) -> None:
        items = takewhile(lambda _: not self._stopping, message.items)
        self._send_as_done(PreparedRows, map(partial(self._prepare_item, message.lane), items))

    def _prepare_item(
        self, lane_number: int, item: Item
    ) -> tuple[list[PreparedItem], list[Failure]]:
        requests, failed = self._prepare_items(lane_number, (item,))
        prepared = [request.report() for request in requests if self._book.add(request)]
        return prepared, [failure for failure in failed if self._book.drop((failure.request,))]

    def _send_as_done(
        self,
        message: Callable[[list[T], list[Failure]], Message],
        results: Iterable[tuple[list[T], list[Failure]]],
    ) -> None:
        """Do a long job, and send what is done and what has failed every `FLUSH_MS`."""
        done: list[T] = []
        failures: list[Failure] = []
        flush_ms = self._clock.monotonic_ms() + FLUSH_MS
        for found, failed in results:
            done += found
            failures += failed
            if (done or failures) and self._clock.monotonic_ms() >= flush_ms:
                self._channel.send(message(done, failures))
                done, failures = [], []
                flush_ms = self._clock.monotonic_ms() + FLUSH_MS
        if done or failures:
            self._channel.send(message(done, failures))

    def _fetch(self, message: Fetch) -> None:
        """Fetch and preprocess one request, on the same thread: it holds one body at a time."""
        (item,) = message.items
        if not self._book.expects(item.request):
            return
        loaded = self._loaded.get(message.lane)
        try:
            if loaded is not None:
                url = item.inputs.decode()
                inputs = self._fetcher.fetch(url, loaded.record.limits, message.tenant)
                item = item._replace(inputs=inputs)
        except BaseException as error:  # noqa: BLE001  one request is no reason to end the others
            failed = request_error(error, "fetch", self._faults)
            if self._book.drop((item.request,)):
                self._channel.send(PreparedRows([], [failure_of(item.request, failed)]))
            return
        self._prepare(Prepare(message.lane, [item]))

    def _answer(
        self, loaded: LoadedModel, request: PreparedRequest
    ) -> tuple[list[Answer], list[Failure]]:
        started_ms = self._clock.monotonic_ms()
        try:
            outputs = encode_answer(loaded, request)
        except BaseException as error:  # noqa: BLE001  one request is no reason to end the others
            failed = request_error(error, "answer", loaded.logger)
            return [], [loaded.failure_of(request.number, failed)]
        return [Answer(request.number, outputs, self._clock.monotonic_ms() - started_ms)], []

    def _answer_inline(
        self, loaded: LoadedModel, requests: Sequence[PreparedRequest], failures: list[Failure]
    ) -> list[Answer]:
        started_ms = self._clock.monotonic_ms()
        encoded = encode_together(loaded, requests) if len(requests) > 1 else None
        if encoded is not None:
            each_ms = (self._clock.monotonic_ms() - started_ms) / len(requests)
            return [
                Answer(request.number, outputs, each_ms)
                for request, outputs in zip(requests, encoded, strict=True)
            ]
        answers: list[Answer] = []
        for request in requests:
            answered, failed = self._answer(loaded, request)
            answers += answered
            failures += failed
        return answers

    def _answer_beside(self, loaded: LoadedModel, requests: Sequence[PreparedRequest]) -> None:
        self._send_as_done(Answers, map(partial(self._answer, loaded), requests))


def _is_cheap(loaded: LoadedModel, requests: Sequence[PreparedRequest]) -> bool:
    """Whether to answer these on the device thread: no code of the user's, and little to encode.

    Rows of one batch are of like length, so the first one stands for all.
    """
    if loaded.postprocesses:
        return False
    if not requests:
        return True
    rows = sum(len(request.outputs) for request in requests)
    return rows * output_bytes(requests[0].outputs[0]) <= INLINE_BYTES_MAX
