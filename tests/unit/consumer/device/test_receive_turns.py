"""Which thread receives, with real threads and a mailbox in place of the socket."""

import os
import sys
import threading
from queue import Empty, SimpleQueue

import pytest

from batchfleet.consumer.device.load_pace import PaceBeside
from batchfleet.consumer.device.receive_turns import ReceiveTurns

PATIENCE_S = 20.0


class Mailbox:
    """Messages are `(job, is_long, is_batch)`, or None to make `receive` return.

    Notes who received.
    """

    def __init__(self):
        self.messages = SimpleQueue()
        self.receivers = SimpleQueue()
        self.inside = threading.Lock()
        self.is_over = threading.Event()
        self.turns = ReceiveTurns(self.receive, lambda: self.messages.put(None))

    def receive(self):
        assert self.inside.acquire(blocking=False), "two threads receive at once"
        try:
            message = self.messages.get(timeout=PATIENCE_S)
        except Empty:
            return
        else:
            if message is not None:
                self.receivers.put(threading.current_thread().name)
                job, is_long, is_batch = message
                self.turns.submit(job, is_long=is_long, is_batch=is_batch)
        finally:
            self.inside.release()

    def send(self, job, *, is_long=False, is_batch=False):
        self.messages.put((job, is_long, is_batch))

    def receiver(self):
        return self.receivers.get(timeout=PATIENCE_S)


@pytest.fixture
def mailbox():
    mailbox = Mailbox()
    threads = [
        threading.Thread(target=loop, args=(mailbox.is_over.is_set,), name=name)
        for name, loop in (("device", mailbox.turns.work), ("main", mailbox.turns.stand_in))
    ]
    for thread in threads:
        thread.start()
    yield mailbox
    mailbox.send(mailbox.is_over.set)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_an_idle_device_thread_receives_for_itself(mailbox):
    done = SimpleQueue()
    for at in range(100):
        mailbox.send(lambda at=at: done.put((at, threading.current_thread().name)))
        assert mailbox.receiver() == "device"
        assert done.get(timeout=PATIENCE_S) == (at, "device")


@pytest.mark.parametrize("is_long", [True, False])
def test_the_main_thread_stands_in_while_the_device_thread_works(mailbox, is_long):
    release, done = threading.Event(), SimpleQueue()

    def wait_for_release():
        assert release.wait(PATIENCE_S)
        done.put("first")

    mailbox.send(wait_for_release, is_long=is_long)
    assert mailbox.receiver() == "device"
    mailbox.send(lambda: done.put("second"))
    assert mailbox.receiver() == "main"
    assert done.empty()
    release.set()
    assert [done.get(timeout=PATIENCE_S) for _ in range(2)] == ["first", "second"]
    mailbox.send(lambda: done.put(threading.current_thread().name))
    assert done.get(timeout=PATIENCE_S) == "device"


def test_nothing_is_lost_however_the_turns_fall(mailbox):
    done = SimpleQueue()
    for at in range(3000):
        mailbox.send(lambda at=at: done.put(at), is_long=at % 3 == 0)
    assert [done.get(timeout=PATIENCE_S) for _ in range(3000)] == list(range(3000))


def test_batches_are_done_within_a_job_that_waits_and_nothing_else_is(mailbox):
    done, order = threading.Event(), SimpleQueue()

    def load():
        order.put("load")
        mailbox.turns.do_batches_until(done.is_set)
        order.put("loaded")

    def finish():
        order.put("batch within" if mailbox.turns.is_between else "batch")
        done.set()
        mailbox.turns.nudge()

    mailbox.send(load, is_long=True)
    assert order.get(timeout=PATIENCE_S) == "load"
    mailbox.send(lambda: order.put("first"), is_batch=True)
    mailbox.send(finish, is_batch=True)
    mailbox.send(lambda: order.put("unloaded"))
    mailbox.send(lambda: order.put("last"), is_batch=True)
    found = [order.get(timeout=PATIENCE_S) for _ in range(5)]
    assert found == ["first", "batch within", "loaded", "unloaded", "last"]


def test_work_aside_has_low_priority_and_lets_batches_run(mailbox):
    inside, ran, found = threading.Event(), threading.Event(), SimpleQueue()
    pace = PaceBeside(mailbox.turns, 100)

    def aside():
        inside.set()
        assert ran.wait(PATIENCE_S)
        return priority()

    mailbox.send(lambda: found.put((pace.aside(aside), priority())), is_long=True)
    assert inside.wait(PATIENCE_S)
    mailbox.send(ran.set, is_batch=True)
    assert found.get(timeout=PATIENCE_S) == (10 if sys.platform == "linux" else 0, priority())


def test_what_fails_aside_fails_where_it_was_asked_for(mailbox):
    found = SimpleQueue()

    def load():
        with pytest.raises(KeyError):
            PaceBeside(mailbox.turns, 0).aside(lambda: {}["missing"])
        found.put("failed")

    mailbox.send(load)
    assert found.get(timeout=PATIENCE_S) == "failed"


def priority():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
