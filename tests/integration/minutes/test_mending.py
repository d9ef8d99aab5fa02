"""A live fleet whose keys somebody else takes away serves again within seconds, and says so."""

import pytest
from support.fleet import check_all_ok, draft_of, running_fleet, until
from support.server import running_server

from batchfleet.ops import deployment
from batchfleet.wire.reply import decode_reply

MODEL = "m"
AGAIN_S = 10
LINES_MAX = 20


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    """A server that may be emptied."""
    with running_server({}) as server:
        yield server


@pytest.fixture
def fleet(own_server, namespace, tmp_path):
    """A router and two workers that serve one model."""
    with running_fleet(own_server, namespace, tmp_path) as found:
        found.bring_up(draft_of("echo", MODEL), workers=2)
        check_all_ok([found.ask(MODEL)])
        yield found
        found.server.flushall()


def lines(fleet):
    return {program.log_path: len(program.log_text().splitlines()) for program in fleet.programs}


def answers(fleet):
    """Whether a new request is run; one that is lost with its stream is not waited for."""
    stream = fleet.keys(MODEL).ingress("default")
    if not fleet.server.exists(stream):
        return False
    request_id = fleet.submit(MODEL)
    key = fleet.keys(MODEL).reply("default", request_id)
    raw = fleet.server.blmove(key, key, 2, "LEFT", "LEFT")
    return raw is not None and decode_reply(raw).status == "ok"


def test_a_server_that_lost_everything_is_filled_again(fleet):
    before = lines(fleet)
    epoch = int(fleet.server.hget(fleet.keys(MODEL).deploy, "epoch"))
    fleet.server.flushall()
    until(lambda: answers(fleet), "new requests are answered", AGAIN_S)
    check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 20)))
    assert int(fleet.server.hget(fleet.keys(MODEL).deploy, "epoch")) == epoch + 1
    router, *workers = fleet.programs
    assert router.events("model.restored")
    fleet.wait_served(MODEL, workers=2)
    assert all(worker.is_running() for worker in workers)
    told = {path: count - before[path] for path, count in lines(fleet).items()}
    assert max(told.values()) <= LINES_MAX, told


@pytest.mark.parametrize("which", ["ingress", "queue"])
@pytest.mark.parametrize("what", ["stream", "group"])
def test_a_stream_or_group_that_was_taken_away_is_recreated(fleet, which, what):
    before = lines(fleet)
    keys = fleet.keys(MODEL)
    stream, group = {
        "ingress": (keys.ingress("default"), "router"),
        "queue": (keys.queue("1", "normal", 0), "worker"),
    }[which]
    if what == "stream":
        fleet.server.delete(stream)
    else:
        fleet.server.xgroup_destroy(stream, group)
    until(lambda: answers(fleet), "new requests are answered", AGAIN_S)
    check_all_ok(fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 20)))
    fleet.wait_idle(MODEL)
    told = {path: count - before[path] for path, count in lines(fleet).items()}
    assert max(told.values()) <= LINES_MAX, told
    assert sum(len(program.events("model.mended")) for program in fleet.programs) == 1


def test_a_model_that_was_undeployed_stays_so(fleet):
    """Routers remember what was deployed, and must not bring it back."""
    deployment.undeploy(fleet.operator, MODEL, forced=True)
    until(lambda: not fleet.lanes(MODEL), "workers have left it")
    fleet.deploy(draft_of("echo", "other"))
    fleet.wait_until_served("other", workers=2)
    check_all_ok([fleet.ask("other")])
    assert not fleet.server.exists(fleet.keys(MODEL).deploy)
    assert not fleet.server.exists(fleet.keys(MODEL).ingress("default"))
