"""X6: jobs of tenants take turns, and neither a tenant nor a host of its own has all threads."""

import threading

import pytest
from support.fleet import until

from batchfleet.consumer.device.thread_pool import FairQueue, JobsMax, ThreadPool

MOST = JobsMax(of_tenant=3, of_host=2)


class Slow:
    """Jobs that hang until they are let go on."""

    def __init__(self, jobs):
        self.over = threading.Event()
        self.began = []
        self._jobs = jobs

    def put(self, tenant, host, count):
        for _ in range(count):
            self._jobs.put(lambda: self._hang(tenant), tenant, host)

    def _hang(self, tenant):
        self.began.append(tenant)
        self.over.wait(10)


@pytest.fixture
def jobs():
    crashed = []
    jobs = FairQueue(MOST)
    pool = ThreadPool("test", 4, crashed.append, jobs)
    pool.start()
    yield jobs
    pool.finish(10)
    assert not crashed


@pytest.fixture
def slow(jobs):
    slow = Slow(jobs)
    yield slow
    slow.over.set()


def test_the_jobs_of_one_tenant_leave_threads_to_the_others(jobs, slow):
    """X6, T5: many that hang at hosts of its own, and one of somebody else's at the same."""
    for host in "hij":
        slow.put("a", host, 4)
    until(lambda: len(slow.began) == MOST.of_tenant, "three of them hang")
    done = threading.Event()
    jobs.put(done.set, "b", "h")
    assert done.wait(5)
    assert len(slow.began) == MOST.of_tenant
    slow.over.set()
    until(lambda: len(slow.began) == 12, "the others have their turn")


def test_the_jobs_for_one_host_leave_threads_to_the_other_hosts_of_the_tenant(jobs, slow):
    """X6, T5."""
    slow.put("a", "h", 8)
    until(lambda: len(slow.began) == MOST.of_host, "two of them hang")
    done = threading.Event()
    jobs.put(done.set, "a", "i")
    assert done.wait(5)
    assert len(slow.began) == MOST.of_host


def test_the_next_thread_is_for_who_has_none(jobs, slow):
    """X6: though others have waited for longer, at many hosts."""
    for tenant in "ab":
        for host in "hijk":
            slow.put(tenant, host, 2)
    until(lambda: len(slow.began) == 4, "all threads hang")
    slow.put("c", "h", 1)
    slow.over.set()
    until(lambda: "c" in slow.began, "it has its turn")
    assert slow.began.index("c") < 8


def test_tenants_and_hosts_take_turns():
    """X6."""
    jobs, order = FairQueue(JobsMax(9, 9)), []
    for name in ("ah", "ah", "ai", "bh", "ch"):
        jobs.put(lambda name=name: order.append(name), *name)
    for _ in range(5):
        jobs.get()()
    assert order == ["ah", "ai", "bh", "ch", "ah"]


def test_what_was_submitted_is_done_before_the_end():
    """X6: what waits for its turn as well."""
    jobs, order = FairQueue(JobsMax(1, 1)), []
    for at in range(3):
        jobs.put(lambda at=at: order.append(at), "a")
    pool = ThreadPool("test", 2, pytest.fail, jobs)
    pool.start()
    pool.finish(10)
    assert order == [0, 1, 2]


def test_a_job_that_fails_leaves_its_place():
    """X6."""
    jobs, done = FairQueue(JobsMax(1, 1)), []

    def fail():
        raise RuntimeError

    jobs.put(fail, "a")
    jobs.put(lambda: done.append(1), "a")
    with pytest.raises(RuntimeError):
        jobs.get()()
    jobs.get()()
    assert done == [1]
