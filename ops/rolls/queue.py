"""Steps of rolls as jobs of rq, of which only what is needed is used.

rq would run whatever function, callback or web hook a job in Redis names, so a job of ours reads
none of them: it holds the name of a model, as JSON, and what is done with it is fixed here. A job
is a hint that something is due. The state of the roll alone says what, so that a job may get lost,
run twice, or be written by a foreign hand.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rq import Queue, SimpleWorker
from rq.exceptions import DequeueTimeout, DuplicateJobError, NoSuchJobError
from rq.job import Job
from rq.registry import clean_registries
from rq.serializers import JSONSerializer
from rq.utils import now
from rq.worker_registration import clean_worker_registry

from ...broker.jobs import server_errors
from ...wire.errors import BatchfleetError
from ...wire.keys import jobs_queue
from ...wire.names import is_name

# A step is a few round trips.
STEP_TIMEOUT_S = 10
_STEP = "batchfleet.roll_step"
_FAILURE_TTL_S = 60
_JOB_TTL_S = 3600
# rq makes time-outs of connections and keys of it; at 15 it waits a second for a job.
_WORKER_TTL_S = 15
_WAIT_S = 1
# Letters of a job's id: rq allows digits, letters, `_` and `-`.
_ESCAPES = str.maketrans({"_": "_u", ".": "_p", ":": "_c"})
_READ_FIELDS = frozenset(
    {b"data", b"created_at", b"enqueued_at", b"origin", b"description", b"status", b"timeout"}
    | {b"result_ttl", b"failure_ttl", b"ttl"}
)


class ForeignJobError(BatchfleetError):
    """A job that no program of ours has added; it is not run."""


class StepJob(Job):
    """A job that can be nothing but a step of a roll. `take` is set before it runs."""

    take: Callable[[str], object]

    @property
    def func(self) -> Callable[..., object]:
        """What is run, whatever the job names."""
        arguments = self.args
        if self.func_name != _STEP or self.kwargs or len(arguments) != 1:
            raise ForeignJobError("a job of another kind is in the queue of rolls; it is not run")
        if not isinstance(arguments[0], str) or not is_name(arguments[0]):
            raise ForeignJobError("a job in the queue of rolls names no model; it is not run")
        return self.take

    def restore(self, raw_data: Mapping[bytes, bytes]) -> None:
        """Read what Redis has of it, but for what it could make rq do: callbacks, web hooks."""
        try:
            super().restore({name: raw_data[name] for name in raw_data if name in _READ_FIELDS})
        except (ValueError, TypeError, AssertionError) as error:  # rq asserts what it reads
            raise NoSuchJobError("no program of ours has written this job") from error


class _StepWorker(SimpleWorker):
    """A worker of rq that runs jobs in this very process, and reports failures to us."""

    def __init__(self, queue: Queue, name: str, failed: Callable[[BaseException], object]) -> None:
        super().__init__(
            [queue],
            name=name,
            connection=queue.connection,
            job_class=StepJob,
            worker_ttl=_WORKER_TTL_S,
            serializer=JSONSerializer,
            prepare_for_work=False,  # else it asks for rights that we do not need
            log_job_description=False,
        )
        self._failed = failed

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        """Report why a job failed; rq would log its arguments."""
        del job
        self._failed(exc_info[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a job's id is made of: which roll, and where it stands."""

    model: str
    epoch: int
    step: int


class StepQueue:
    """The steps that wait, for one thread.

    Args:
        client: of rq's server (`broker.jobs`).
        namespace: of the fleet.
    """

    def __init__(self, client: Any, namespace: str) -> None:
        self._namespace = namespace
        self._queue = Queue(
            jobs_queue(namespace),
            connection=client,
            default_timeout=STEP_TIMEOUT_S,
            job_class=StepJob,
            serializer=JSONSerializer,
        )

    def job_id(self, step: Step) -> str:
        """`namespace:model:epoch:step` in the letters that rq allows."""
        return f"{self._namespace}:{step.model}:{step.epoch}:{step.step}".translate(_ESCAPES)

    def add(self, step: Step) -> bool:
        """Have a jobs worker take a step; False where it waits, or runs, already.

        Raises:
            ServerError: the server failed.
        """
        with server_errors():
            job = StepJob.create(
                _STEP,
                args=[step.model],
                id=self.job_id(step),
                origin=self._queue.name,
                connection=self._queue.connection,
                serializer=JSONSerializer,
                timeout=STEP_TIMEOUT_S,
                result_ttl=0,
                failure_ttl=_FAILURE_TTL_S,
                ttl=_JOB_TTL_S,
            )
            try:
                self._queue.enqueue_job(job, unique=True)
            except DuplicateJobError:
                return False
            return True

    def forget(self, step: Step) -> None:
        """Remove a job that nobody has finished.

        Raises:
            ServerError: the server failed.
        """
        with server_errors():
            try:
                StepJob.fetch(
                    self.job_id(step),
                    connection=self._queue.connection,
                    serializer=JSONSerializer,
                ).delete()
            except NoSuchJobError:
                return

    def worker(self, name: str, host: str, pid: int) -> "QueueWorker":
        """A worker of this queue."""
        return QueueWorker(self._queue, name, host, pid)


class QueueWorker:
    """Takes steps out of the queue, on the main thread: their time limit is a signal."""

    def __init__(self, queue: Queue, name: str, host: str, pid: int) -> None:
        self._queue = queue
        self._failure: BaseException | None = None
        # Any: half of rq's methods carry no types.
        self._worker: Any = _StepWorker(queue, name, self._keep_failure)
        self._worker.hostname, self._worker.pid = host, pid

    def _keep_failure(self, error: BaseException) -> None:
        self._failure = error

    def enter(self) -> None:
        """Announce itself to rq.

        Raises:
            ServerError: the server failed.
        """
        with server_errors():
            self._worker.register_birth()

    def beat(self) -> BaseException | None:
        """Stay among the workers of rq, and clean up after those that are gone, now and then.

        Returns what kept it from cleaning up: something that a foreign hand wrote.

        Raises:
            ServerError: the server failed.
        """
        with server_errors():
            self._worker.heartbeat()
            if not self._worker.should_run_maintenance_tasks:
                return None
            self._worker.last_cleaned_at = now()
            # What a worker had taken when it died is due again by the state of the roll.
            self._queue.connection.delete(self._queue.intermediate_queue_key)
            try:
                clean_registries(self._queue)
                clean_worker_registry(self._queue)
            except ValueError as error:
                return error
        return None

    def run_next(self, take: Callable[[str], object]) -> BaseException | None:
        """Wait a second for a job and run it; what it failed by, None where it did not.

        Raises:
            ServerError: the server failed.
        """
        self._failure = None
        with server_errors():
            try:
                found: Any = self._queue.dequeue_any(
                    [self._queue],
                    _WAIT_S,
                    connection=self._queue.connection,
                    job_class=StepJob,
                    serializer=JSONSerializer,
                )
            except DequeueTimeout:
                return None
            except ValueError as error:  # what was queued is no job's id
                return error
            if found is None:
                return None
            job, queue = found
            job.take = take
            self._worker.execute_job(job, queue)
        return self._failure

    def leave(self) -> None:
        """Leave the workers of rq.

        Raises:
            ServerError: the server failed.
        """
        with server_errors():
            self._worker.register_death()
