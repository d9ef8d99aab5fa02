"""Where two copies of a version fit; how a model is handed over is in test_taking_over.py."""

import pytest

from batchfleet.ops.handing_over import fits_beside
from batchfleet.wire.announcements import WorkerAnnouncement


def worker(host="h", device="cpu", free="3000", memory="1000"):
    versions = {"1": {"state": "ready", "memory_bytes": memory}}
    facts = {"host": host, "device": device, "free_bytes": free}
    return WorkerAnnouncement(versions=versions, facts=facts)


@pytest.mark.parametrize(
    ("workers", "fits"),
    [
        ([], True),
        ([worker()], True),
        ([worker(free="1050")], False),
        ([worker(), worker()], True),
        ([worker(), worker(), worker()], False),  # they share what is free
        ([worker(host="a"), worker(host="b"), worker(host="c")], True),
        ([worker(device=f"cuda:{at}", free="1200") for at in range(3)], True),
        ([worker(device="cuda:0", free="1200"), worker(device="cuda:0", free="1200")], False),
        ([worker(free="")] * 3, True),  # it is not known
        ([worker(free="nonsense")] * 3, True),
        ([worker(memory="")] * 3, True),
    ],
)
def test_each_machine_needs_room_for_a_copy_a_worker(workers, fits):
    said = {f"w{at}": one for at, one in enumerate(workers)}
    assert fits_beside("1", said) is fits
