"""The queue of steps, on a real server: what rq does of what it could."""

import pytest
from rq import Queue
from rq.serializers import JSONSerializer

from batchfleet.broker.jobs import jobs_client
from batchfleet.ops.rolls.queue import ForeignJobError, Step, StepQueue
from batchfleet.wire.errors import ServerError
from batchfleet.wire.keys import jobs_queue

STEP = Step(model="mini.lm_1", epoch=17, step=2)


@pytest.fixture
def client(redis_url):
    found = jobs_client(redis_url, 11)
    yield found
    found.close()


@pytest.fixture
def queue(client, namespace):
    return StepQueue(client, namespace)


@pytest.fixture
def worker(queue):
    found = queue.worker("j-1", "host", 1)
    found.enter()
    yield found
    found.leave()


def keys_of(client, namespace):
    """The keys that a step has left, without those of workers."""
    found = {key.decode() for key in client.scan_iter(match=f"rq:*{namespace}*")}
    return {key for key in found if not key.startswith("rq:workers")}


def test_a_step_is_queued_once_and_leaves_nothing(client, namespace, queue, worker):
    taken = []
    assert queue.add(STEP)
    assert not queue.add(STEP)
    assert queue.job_id(STEP) == f"{namespace}_cmini_plm_u1_c17_c2"
    assert worker.run_next(taken.append) is None
    assert taken == ["mini.lm_1"]
    assert keys_of(client, namespace) == set()
    assert queue.add(STEP)
    queue.forget(STEP)
    queue.forget(STEP)
    assert keys_of(client, namespace) == set()


def test_ids_tell_steps_apart(queue):
    models = ["a.b", "a_pb", "a_b", "a-b", "a", "a_c1"]
    steps = [Step(model=model, epoch=epoch, step=1) for model in models for epoch in (1, 11)]
    assert len({queue.job_id(step) for step in steps}) == len(steps)


def test_what_a_step_fails_by_is_told_and_it_may_be_queued_again(queue, worker):
    def fail(_):
        raise ServerError("away")

    queue.add(STEP)
    assert isinstance(worker.run_next(fail), ServerError)
    assert not queue.add(STEP)
    queue.forget(STEP)
    assert queue.add(STEP)
    assert worker.run_next(bool) is None


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("os.system", ["touch /tmp/batchfleet-was-here"]),
        ("batchfleet.roll_step", []),
        ("batchfleet.roll_step", ["no/name"]),
        ("batchfleet.roll_step", [7]),
        ("batchfleet.roll_step", ["a", "b"]),
    ],
)
def test_no_other_function_is_run(client, namespace, worker, function, arguments):
    taken = []
    foreign = Queue(jobs_queue(namespace), connection=client, serializer=JSONSerializer)
    foreign.enqueue(function, args=arguments, job_id=f"{namespace}_foreign")
    assert isinstance(worker.run_next(taken.append), ForeignJobError)
    assert taken == []


def test_what_was_pickled_is_not_read(client, namespace, worker):
    Queue(jobs_queue(namespace), connection=client).enqueue(print, job_id=f"{namespace}_pickled")
    assert worker.run_next(bool) is not None


@pytest.mark.parametrize(
    "fields", [{}, {"data": b"x", "timeout": b"soon"}, {"data": b"x", "status": b"flying"}]
)
def test_a_job_of_a_foreign_hand_ends_no_worker(client, namespace, worker, queue, fields):
    taken = []
    job_id = f"{namespace}_odd"
    if fields:
        client.hset(f"rq:job:{job_id}", mapping=fields)
    client.rpush(f"rq:queue:{jobs_queue(namespace)}", job_id, b"\xff", "not:an:id")
    queue.add(STEP)
    for _ in range(4):
        worker.run_next(taken.append)
    assert taken == ["mini.lm_1"]


def test_callbacks_and_web_hooks_of_a_job_are_not_read(client, namespace, worker, queue):
    queue.add(STEP)
    key = f"rq:job:{queue.job_id(STEP)}"
    hooks = b'[{"url": "http://127.0.0.1:9/", "events": ["finished"]}]'
    client.hset(key, mapping={"success_callback_name": "os.abort", "webhooks": hooks})
    assert worker.run_next(bool) is None
    assert not client.exists(key)
