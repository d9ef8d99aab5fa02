"""What is asked of a CUDA device's memory, with a stand-in for torch; a real one: `tests/gpu`."""

import sys
from types import SimpleNamespace

import pytest
from support.manual_clock import ManualClock

from batchfleet.consumer.device.device_memory import (
    MEMORY_EVERY_MS,
    MemoryReport,
    free_device_bytes,
    held_bytes,
    require_room,
)
from batchfleet.consumer.link.protocol import Load
from batchfleet.wire.errors import StoreError


class Cuda:
    """A device with 1,000 bytes left."""

    def __init__(self):
        self.began = False

    def is_initialized(self):
        return self.began

    def memory_reserved(self, device):
        return {"cuda:1": 300}[device]

    def mem_get_info(self, device):
        self.began = True
        return {"cuda:1": (1000, 5000)}[device]


@pytest.fixture
def cuda(monkeypatch):
    found = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=found))
    return found


def load(device, beside="echo/1"):
    return Load(1, "m", "2", "/", device, 1, b"", beside, 0, 0)


def test_a_device_is_asked_for_room_before_the_first_use_of_it(cuda):
    require_room(load("cuda:1"), 1000)
    assert cuda.began
    with pytest.raises(StoreError, match="not enough memory beside echo/1"):
        require_room(load("cuda:1"), 1001)
    require_room(load("cuda:1", beside=""), 1001)


def test_a_device_that_is_not_in_use_is_left_alone(cuda):
    assert (held_bytes("cuda:1"), free_device_bytes("cuda:1")) == (0, 0)
    assert not cuda.began
    cuda.began = True
    assert (held_bytes("cuda:1"), free_device_bytes("cuda:1")) == (300, 1000)


def test_nothing_is_known_of_a_device_without_torch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    require_room(load("cuda:1"), 1 << 60)
    assert free_device_bytes("cuda:1") == 0


def test_the_report_says_what_has_changed_once_a_second(cuda):
    clock = ManualClock()
    report = MemoryReport(clock)
    assert not report.is_due()
    clock.advance(MEMORY_EVERY_MS)
    assert (report.is_due(), report.is_due()) == (True, False)
    (first,) = report.news()
    assert first.free_bytes == 0
    assert report.news() == []
    cuda.mem_get_info = lambda _: (50 << 20, 80 << 20)
    cuda.began = True
    report.note_load("cuda:1")
    assert [said.free_bytes for said in report.news()] == [50 << 20]
