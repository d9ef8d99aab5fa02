"""How a request of many rows is spread among others."""

import pytest

from batchfleet.consumer.batching.cost import CostCurve
from batchfleet.consumer.batching.dispatch import prepare_messages, waiting_rows
from batchfleet.consumer.batching.state import HeldRequest, Lane, Placement
from batchfleet.consumer.link.protocol import Fetch, Prepare
from batchfleet.wire.deployment import VersionRecord
from batchfleet.wire.work import WorkEntry

URL = "https://data.example/1"


def held_in(lane, number, lengths=(), **fields):
    entry = WorkEntry("s", b"1-0", f"r{number}", "t", b"x", 60_000, **fields)
    held = HeldRequest(number, entry, lane, Placement(1, 0), 100.0, 60_000.0, lengths=list(lengths))
    held.kinds = [0] * len(held.lengths)
    lane.weigh(held)
    return held


@pytest.fixture
def lane():
    """A batch of eight rows takes 8 ms."""
    curve = CostCurve.from_points([(1, 10, 8.0), (8, 10, 8.0)])
    return Lane(1, "m", VersionRecord(version="1"), cost=curve)


def test_alone_its_rows_follow_each_other_as_the_device_can_serve_them(lane):
    ranks = [row.rank_ms for row in waiting_rows(held_in(lane, 1, [10] * 4))]
    assert ranks == pytest.approx([100, 101, 102, 103])


def test_among_others_each_row_lets_all_of_them_go_first(lane):
    for number in range(2, 6):
        held_in(lane, number, [10])
    ranks = [row.rank_ms for row in waiting_rows(held_in(lane, 1, [10] * 4))]
    assert ranks == pytest.approx([100, 105, 110, 115])


def test_what_is_fetched_is_sent_by_tenant(lane):
    held = [held_in(lane, number, inputs_at=URL) for number in range(1, 5)]
    held[1].entry = held[1].entry._replace(tenant="other")
    fetches = prepare_messages(lane, held)
    sent = [(fetch.tenant, [item.request for item in fetch.items]) for fetch in fetches]
    assert sent == [("t", [1, 3, 4]), ("other", [2])]


def test_what_lies_at_a_url_is_fetched_and_the_rest_is_not(lane):
    here, there = held_in(lane, 1), held_in(lane, 2, inputs_at=URL)
    blob = held_in(lane, 3, inputs_at="blob")
    prepare, fetch = prepare_messages(lane, [here, there, blob])
    assert isinstance(prepare, Prepare)
    assert isinstance(fetch, Fetch)
    assert [item.request for item in prepare.items] == [1, 3]
    assert [(item.request, item.inputs) for item in fetch.items] == [(2, URL.encode())]
    assert prepare_messages(lane, [there]) == [fetch]
