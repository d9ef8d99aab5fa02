"""Which thread receives, with real threads and a mailbox in place of the socket."""

import threading
from queue import Empty, SimpleQueue

import pytest

from batchfleet.consumer.device.receive_turns import ReceiveTurns

PATIENCE_S = 20.0


class Mailbox:
    """Messages are `(job, is_long)`, or None to make `receive` return; notes who received."""

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
                job, is_long = message
                self.turns.submit(job, is_long=is_long)
        finally:
            self.inside.release()

    def send(self, job, *, is_long=False):
        self.messages.put((job, is_long))

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
