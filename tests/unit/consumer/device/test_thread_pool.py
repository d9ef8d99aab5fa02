"""X6: jobs under names take turns, and one name never has all threads."""

import threading

import pytest
from support.fleet import until

from batchfleet.consumer.device.thread_pool import FairQueue, ThreadPool


@pytest.fixture
def crew():
    crashed = []
    jobs = FairQueue(2)
    crew = ThreadPool("test", 4, crashed.append, jobs)
    crew.start()
    yield jobs
    crew.finish(10)
    assert not crashed


def test_the_jobs_of_one_name_leave_threads_to_the_others(crew):
    """X6, T5: eight that hang, and one of somebody else's."""
    over, began, done = threading.Event(), [], threading.Event()

    def hang():
        began.append(1)
        over.wait(10)

    for _ in range(8):
        crew.put(hang, "slow")
    until(lambda: len(began) == 2, "two of them hang")
    crew.put(done.set, "quick")
    assert done.wait(5)
    assert len(began) == 2
    over.set()
    until(lambda: len(began) == 8, "the others have their turn")


def test_names_take_turns():
    """X6."""
    jobs, order = FairQueue(9), []
    for name in ("a", "a", "a", "b", "c"):
        jobs.put(lambda name=name: order.append(name), name)
    for _ in range(5):
        jobs.get()()
    assert order == ["a", "b", "c", "a", "a"]


def test_what_was_submitted_is_done_before_the_end():
    """X6: what waits for its turn as well."""
    jobs, order = FairQueue(1), []
    for at in range(3):
        jobs.put(lambda at=at: order.append(at), "a")
    crew = ThreadPool("test", 2, pytest.fail, jobs)
    crew.start()
    crew.finish(10)
    assert order == [0, 1, 2]


def test_a_job_that_fails_leaves_its_place():
    """X6."""
    jobs, done = FairQueue(1), []

    def fail():
        raise RuntimeError

    jobs.put(fail, "a")
    jobs.put(lambda: done.append(1), "a")
    with pytest.raises(RuntimeError):
        jobs.get()()
    jobs.get()()
    assert done == [1]
