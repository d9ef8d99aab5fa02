"""What is asked of a CUDA device's memory, with a stand-in for torch; a real one: `tests/gpu`."""

import sys
from types import SimpleNamespace

import pytest

from batchfleet.consumer.device.device_memory import held_bytes, require_room
from batchfleet.consumer.link.protocol import Load
from batchfleet.wire.errors import StoreError


class Cuda:
    """A device with 1,000 bytes left, and 50 that torch keeps."""

    def __init__(self):
        self.began = False

    def is_initialized(self):
        return self.began

    def memory_reserved(self, device):
        return {"cuda:1": 300}[device]

    def memory_allocated(self, device):
        return {"cuda:1": 250}[device]

    def mem_get_info(self, device):
        return {"cuda:1": (950, 5000)}[device]


@pytest.fixture
def cuda(monkeypatch):
    found = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=found))
    return found


def load(beside="echo/1"):
    return Load(1, "m", "2", "/", "cuda:1", 1, b"", beside, 0, 0)


@pytest.mark.usefixtures("cuda")
def test_a_version_beside_others_needs_room_on_the_device():
    require_room(load(), 1000)
    with pytest.raises(StoreError, match="not enough memory beside echo/1"):
        require_room(load(), 1001)
    require_room(load(beside=""), 1001)


def test_a_device_that_is_not_in_use_is_left_alone(cuda):
    assert held_bytes("cuda:1") == 0
    cuda.began = True
    assert held_bytes("cuda:1") == 300
