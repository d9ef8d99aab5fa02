"""Faults that users of other queues reported: of streams and groups that are lost while all runs.

`docs/decisions/0009-reported-faults.md` says which test stands for which report.
"""

import pytest
from support.fleet import check_all_ok, draft_of, shared_fleet, until
from support.server import ServerAddress, private_server

MODEL = "m"
FAST = {"lease_ms": 600, "beat_ms": 200, "recover_ms": 200}
# Of one process, for one loss: what is told once per kind of trouble, and nothing a second time.
LOG_LINES_MAX = 20


@pytest.fixture(scope="module")
def own_server():
    """A server that these tests alone may flush."""
    with private_server() as server:
        yield ServerAddress(url=server.url, socket_url=server.socket_url, pid=server.pid)


@pytest.fixture(scope="module")
def fleet(own_server, tmp_path_factory):
    """One fleet that lives through every loss."""
    folder = tmp_path_factory.mktemp("fleet")
    with shared_fleet(own_server, folder, draft_of("echo", MODEL), workers=2, **FAST) as found:
        assert found.ask(MODEL).status == "ok"
        yield found


def log_lines(fleet):
    return [len(program.log_text().splitlines()) for program in fleet.programs]


def submitted_once_there(fleet, count):
    """Submit as soon as the model is there again: before, `XADD` answers nil."""
    stream = fleet.keys(MODEL).ingress("default")
    until(lambda: fleet.server.exists(stream), "the ingress stream is recreated", 5)
    return fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(count)])


def lose_everything(fleet):
    fleet.server.flushall()


def lose_the_streams(fleet):
    keys = fleet.keys(MODEL)
    fleet.server.delete(keys.ingress("default"), *fleet.queues(MODEL))


def lose_the_groups(fleet):
    keys = fleet.keys(MODEL)
    fleet.server.xgroup_destroy(keys.ingress("default"), "router")
    for stream in fleet.queues(MODEL):
        fleet.server.xgroup_destroy(stream, "worker")


@pytest.mark.parametrize("lose", [lose_everything, lose_the_streams, lose_the_groups])
def test_work_continues_after_a_loss_without_a_flood_of_log_lines(fleet, lose):
    before = log_lines(fleet)
    lose(fleet)
    ids = submitted_once_there(fleet, 10)
    check_all_ok(fleet.replies(MODEL, ids, timeout_s=10))
    until(lambda: len(fleet.lanes(MODEL)) == 2, "both workers are among the living")
    grown = [now - then for now, then in zip(log_lines(fleet), before, strict=True)]
    assert max(grown) <= LOG_LINES_MAX, grown


def test_requests_in_hand_when_their_group_is_lost_are_answered_once(fleet):
    """They are handed out again by the new group, which begins at the start of the stream."""
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:50"}] * 16)
    until(lambda: fleet.pending(MODEL) >= 8, "workers hold some")
    for stream in fleet.queues(MODEL):
        fleet.server.xgroup_destroy(stream, "worker")
    check_all_ok(fleet.replies(MODEL, ids, timeout_s=10))
    fleet.wait_idle(MODEL)
    assert {len(fleet.items(MODEL, name)) for name in ids} == {1}
