"""Every command of the contract on every broker; accepting, finishing, taking have own files."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.broker_wire import ANSWER, INPUTS, RECORD, TENANT, TTL_MS
from support.fleet import until

from batchfleet.broker import fleet, ingress, membership, requests
from batchfleet.broker.commands import as_is, plain
from batchfleet.broker.errors import NoGroupError, RefusedError, UnreachableError
from batchfleet.broker.interface import blocking_timeout_s
from batchfleet.wire.deployment import Deployment
from batchfleet.wire.errors import SettingsError
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.request import Request

PATIENCE_S = 20.0
SOON_S = 0.05
WHILE_S = 2.0


def undeployed(wire):
    return ModelKeys(wire.keys.namespace, "nowhere")


# Ingress.


def test_submit_adds_to_a_deployed_model_and_to_no_other(wire):
    request = Request(id="a", inputs=INPUTS)
    entry_id = wire.run(requests.submit(wire.keys, TENANT, request))
    ((stream, [(read_id, fields)]),) = wire.run(ingress.read([wire.ingress], "r", 10, 0))
    assert (stream, read_id) == (wire.ingress, entry_id)
    assert fields == [b"id", b"a", b"inputs", INPUTS]
    assert wire.run(requests.submit(wire.keys, "stranger", request)) is None
    assert wire.run(requests.submit(undeployed(wire), TENANT, request)) is None
    assert wire.ask("EXISTS", wire.keys.ingress("stranger")) == 0


def test_ids_of_entries_rise_with_the_servers_clock(wire):
    before = wire.now_ms()
    ids = [wire.enter(f"r{at}") for at in range(50)]
    pairs = [tuple(map(int, entry_id.split(b"-"))) for entry_id in ids]
    assert pairs == sorted(set(pairs))
    assert before <= pairs[0][0] <= wire.now_ms()
    with pytest.raises(RefusedError):
        wire.enter("late", entry_id="1-1")


def test_ingress_is_read_once_and_again_by_its_reader_alone(wire):
    ids = [wire.ask("XADD", wire.ingress, "*", "id", f"r{at}") for at in range(5)]
    read = wire.run(ingress.read([wire.ingress], "r1", 2, 0))
    assert [entry for entry, _ in read[0][1]] == ids[:2]
    rest = wire.run(ingress.read([wire.ingress], "r2", 10, 0))
    assert [entry for entry, _ in rest[0][1]] == ids[2:]
    assert wire.run(ingress.read([wire.ingress], "r1", 10, 0)) == []
    again = wire.run(ingress.reread(wire.ingress, "r1", "0", 10))
    assert [entry.entry_id for entry in again] == ids[:2]
    after = wire.run(ingress.reread(wire.ingress, "r1", ids[0].decode(), 10))
    assert [entry.entry_id for entry in after] == ids[1:2]
    assert wire.run(ingress.reread(wire.ingress, "r3", "0", 10)) == []


def test_an_entry_deleted_meanwhile_is_read_without_fields(wire):
    first, second = wire.enter("a"), wire.enter("b")
    wire.ask("XDEL", wire.ingress, first)
    again = wire.run(ingress.reread(wire.ingress, "router-1", "0", 10))
    assert again == [(first, None, False), (second, [b"id", b"b", b"inputs", INPUTS], False)]


def test_what_a_router_left_is_claimed_once_it_was_idle(wire):
    kept, deleted = wire.enter("kept"), wire.enter("deleted")
    wire.ask("XDEL", wire.ingress, deleted)
    assert wire.run(ingress.claim(wire.ingress, "r2", 60_000, 10)).entry_ids == []
    claimed = wire.run(ingress.claim(wire.ingress, "r2", 0, 10)).entry_ids
    assert claimed == [kept]
    mine = wire.run(ingress.reread(wire.ingress, "r2", "0", 10))
    assert [entry.entry_id for entry in mine] == [kept]
    assert wire.run(ingress.reread(wire.ingress, "router-1", "0", 10)) == []


def test_entries_for_nobody_are_dropped(wire):
    ids = [wire.enter("a"), wire.enter("b")]
    assert wire.executor.run_all(ingress.drop(wire.ingress, ids)) == [2, 2]
    assert wire.executor.run_all(ingress.drop(wire.ingress, ids)) == [0, 0]
    assert wire.ingress_left() == (0, 0)


@pytest.mark.parametrize(
    "command",
    [
        lambda stream: ingress.read([stream], "r", 10, 0),
        lambda stream: ingress.read([stream], "r", 10, 50),
        lambda stream: ingress.reread(stream, "r", "0", 10),
        lambda stream: ingress.claim(stream, "r", 0, 10),
        lambda stream: requests.reread_work(stream, "w", "0", 10),
    ],
)
def test_a_stream_without_its_group_is_told(wire, command):
    with pytest.raises(NoGroupError) as caught:
        wire.run(command(wire.keys.ingress("stranger")))
    assert caught.value.code == "NOGROUP"
    assert wire.ask("EXISTS", wire.keys.ingress("stranger")) == 0


def test_one_missing_stream_spoils_the_whole_read_and_hands_out_nothing(wire):
    wire.ask("XADD", wire.ingress, "*", "id", "a")
    streams = [wire.ingress, wire.keys.ingress("stranger")]
    with pytest.raises(NoGroupError):
        wire.run(ingress.read(streams, "r", 10, 0))
    assert wire.ingress_left() == (1, 0)


# Waiting.


def test_a_wait_ends_with_nothing_when_its_time_is_over(wire):
    assert wire.run(requests.wait_for_bell([wire.bell], SOON_S)) is False
    assert wire.run(ingress.read([wire.ingress], "r", 10, 10)) == []
    key = wire.reply_key("a")
    assert wire.ask("BLMOVE", key, key, "LEFT", "LEFT", SOON_S) is None


def test_a_bell_that_rang_before_is_heard_at_once_and_once(wire):
    wire.ask("RPUSH", wire.bell, "1")
    bells = [wire.keys.worker_bell("w1"), wire.bell]
    assert wire.run(requests.wait_for_bell(bells, WHILE_S)) is True
    assert wire.run(requests.wait_for_bell(bells, SOON_S)) is False


@pytest.fixture
def waiting(wire):
    """Starts commands that wait, each on a connection and thread of its own."""
    pool = ThreadPoolExecutor(8)

    def start(command):
        executor = wire.broker.connect("waiting", blocking_timeout_s(PATIENCE_S))
        return pool.submit(lambda: _run_and_close(executor, command))

    yield start
    pool.shutdown()


def _run_and_close(executor, command):
    with executor:
        return executor.run(command)


def test_what_comes_while_one_waits_is_handed_over(wire, waiting):
    read = waiting(ingress.read([wire.ingress], "r", 10, 15_000))
    bell = waiting(requests.wait_for_bell([wire.keys.worker_bell("w1")], 15))
    key = wire.reply_key("a")
    reply = waiting(plain(as_is, "BLMOVE", key, key, "LEFT", "LEFT", 15))
    second = waiting(plain(as_is, "BLMOVE", key, key, "LEFT", "LEFT", 15))
    wire.run(requests.submit(wire.keys, TENANT, Request(id="a", inputs=INPUTS)))
    assert [fields[1] for _, fields in read.result(PATIENCE_S)[0][1]] == [b"a"]
    wire.join()
    assert wire.run(membership.ring(wire.keys, "w1"))
    assert bell.result(PATIENCE_S) is True
    wire.ask("RPUSH", key, ANSWER)
    assert (reply.result(PATIENCE_S), second.result(PATIENCE_S)) == (ANSWER, ANSWER)
    assert wire.replies("a") == [ANSWER]


def test_scripts_wake_those_who_wait(wire, waiting):
    key = wire.reply_key("a")
    bell = waiting(requests.wait_for_bell([wire.bell], 15))
    reply = waiting(plain(as_is, "BLMOVE", key, key, "LEFT", "LEFT", 15))
    wire.open("a")
    assert bell.result(PATIENCE_S) is True
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert reply.result(PATIENCE_S) == ANSWER


def test_one_token_wakes_one_worker(wire, waiting):
    bells = [waiting(requests.wait_for_bell([wire.bell], 0.4)) for _ in range(3)]
    wire.ask("RPUSH", wire.bell, "1")
    assert sorted(bell.result(PATIENCE_S) for bell in bells) == [False, False, True]


def test_who_waits_longer_than_its_connection_allows_gets_no_answer(wire):
    with wire.broker.connect("short", SOON_S) as executor:
        with pytest.raises(UnreachableError):
            executor.run(plain(as_is, "BLPOP", wire.bell, PATIENCE_S))
        assert executor.run(fleet.ping()) in (b"PONG", "PONG")


def test_a_wait_that_its_connection_would_not_sit_out_is_refused_unsent(wire):
    """The margin is for the way there and back; an answer that came later would be lost."""
    wire.ask("RPUSH", wire.bell, "1")
    with wire.broker.connect("short", 7.0) as executor:
        for wait_s in (7.0, 5.5):
            bell = requests.wait_for_bell([wire.bell], wait_s)
            with pytest.raises(SettingsError, match="gives up after 7 s"):
                executor.run(bell)
            with pytest.raises(SettingsError):
                executor.run_each([fleet.ping(), bell])
        assert wire.ask("LLEN", wire.bell) == 1
        assert executor.run(requests.wait_for_bell([wire.bell], 5.0)) is True


def test_commands_sent_together_wait_for_those_before_them(wire):
    """As intake does: the wait and the take behind it in one exchange."""
    wire.open("a")
    wire.join()
    streams = fleet.queue_streams(wire.keys, RECORD)
    rang, taken = wire.executor.run_each(
        [
            requests.wait_for_bell([wire.bell], WHILE_S),
            requests.take(wire.keys, "w1", wire.stamp(), RECORD, streams, 10),
        ]
    )
    assert rang is True
    assert [fields[1] for _, entries in taken for _, fields in entries] == [b"a"]


# Looking up.


def test_a_request_is_looked_up_where_it_stands(wire):
    keys = wire.keys
    wire.open("a")
    assert wire.run(requests.open_requests(keys)) == 1
    assert wire.run(requests.deadline(keys, TENANT, "a")) > wire.now_ms()
    assert wire.run(requests.tombstone(keys, TENANT, "a")) is None
    assert wire.run(requests.reply(keys, TENANT, "a")) is None
    wire.join()
    (work,) = wire.take()
    wire.settle(work)
    assert wire.run(requests.open_requests(keys)) == 0
    assert wire.run(requests.deadline(keys, TENANT, "a")) is None
    assert wire.run(requests.tombstone(keys, TENANT, "a")) == "ok"
    assert wire.run(requests.reply(keys, TENANT, "a")) == ANSWER
    (command,) = requests.forget_replies(keys, TENANT, ["a", "b"])
    assert wire.run(command) == 1
    assert wire.run(requests.reply(keys, TENANT, "a")) is None


def test_what_waits_is_looked_at_without_being_taken(wire):
    wire.open("a", "b", "c")
    queue = wire.queue()
    first = wire.run(requests.waiting(queue, "-", 2))
    assert [fields[1] for _, fields in first] == [b"a", b"b"]
    rest = wire.run(requests.waiting(queue, "(" + first[-1][0].decode(), 10))
    assert [fields[1] for _, fields in rest] == [b"c"]
    at_first = wire.run(requests.waiting(queue, first[0][0].decode(), 1))
    assert at_first == first[:1]
    assert wire.run(requests.waiting(queue, "+", 1)) == []
    assert wire.run(requests.stream_length(queue)) == 3
    assert wire.run(requests.stream_length("no:{such}:stream")) == 0
    assert wire.run(requests.waiting("no:{such}:stream", "-", 1)) == []
    wire.join()
    assert len(wire.take()) == 3


def test_an_answer_that_was_lost_is_found_among_what_is_pending(wire):
    wire.open("a", "b")
    wire.join()
    taken = wire.take(room=1)
    pending = wire.run(requests.reread_work(wire.queue(), "w1", "0", 10))
    assert [entry for entry, _ in pending] == [work.entry_id for work in taken]
    assert wire.run(requests.reread_work(wire.queue(), "w2", "0", 10)) == []


def test_overdue_are_those_past_their_deadline_the_longest_first(wire):
    now = wire.now_ms()
    for at, late_ms in enumerate((1_000, 3_000, 2_000, -60_000)):
        wire.ask("ZADD", wire.keys.due, now - late_ms, f"{TENANT}:r{at}")
    members = [f"{TENANT}:r{at}".encode() for at in (1, 2, 0)]
    assert wire.run(requests.overdue(wire.keys, 2)) == members[:2]
    assert wire.run(requests.overdue(wire.keys, 10)) == members
    assert wire.run(requests.overdue(undeployed(wire), 10)) == []


# Deploy records.


def test_a_deploy_record_is_read_as_it_was_written(wire):
    deployment = wire.run(fleet.deployment(wire.keys))
    assert isinstance(deployment, Deployment)
    assert (deployment.stable, deployment.epoch, deployment.nonce) == ("1", 1, "n")
    assert deployment.versions == {"1": RECORD}
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT]
    assert wire.run(fleet.is_deployed(wire.keys)) is True
    assert wire.run(fleet.deployment(undeployed(wire))) is None
    assert wire.run(fleet.deploy_hash(undeployed(wire))) == {}
    assert wire.run(fleet.is_deployed(undeployed(wire))) is False


def test_deploying_again_keeps_streams_and_moves_the_epoch(wire):
    wire.open("a")
    streams = fleet.queue_streams(wire.keys, RECORD)
    assert wire.run(fleet.deploy(wire.keys, RECORD, streams, "m", [TENANT, "other"])) == 2
    assert wire.run(requests.stream_length(wire.queue())) == 1
    assert wire.run(fleet.tenants(wire.keys)) == [TENANT, "other"]
    assert wire.run(fleet.deployment(wire.keys)).nonce == "m"


def test_limits_are_overridden_and_taken_back(wire):
    keys = wire.keys
    extra = keys.queue("1", "normal", 128)
    assert wire.run(fleet.configure(keys, {"set:backlog": b"7"}, [extra], "n2")) == 2
    assert wire.run(fleet.deployment(keys)).limits.backlog == 7
    assert wire.ask("EXISTS", extra) == 1
    assert wire.run(fleet.configure(keys, {"set:backlog": b""}, [extra], "n3")) == 3
    assert wire.run(fleet.deployment(keys)).limits.backlog == RECORD.limits.backlog
    assert wire.run(fleet.configure(undeployed(wire), {"set:backlog": b"7"}, [], "n")) == 0
    assert wire.run(fleet.is_deployed(undeployed(wire))) is False


def test_a_stream_key_of_the_wrong_type_fails_the_deployment(wire):
    taken = wire.keys.queue("2", "normal", 16)
    wire.ask("SET", taken, "not a stream")
    with pytest.raises(RefusedError) as caught:
        wire.run(fleet.deploy(wire.keys, RECORD, [taken], "n", [TENANT]))
    assert caught.value.code == "WRONGTYPE"


def test_a_model_with_open_requests_is_undeployed_by_force_alone(wire):
    wire.open("a")
    others = [wire.ingress, *fleet.queue_streams(wire.keys, RECORD)]
    assert wire.run(fleet.undeploy(wire.keys, others, forced=False)) == (False, 1)
    assert wire.run(fleet.is_deployed(wire.keys))
    assert wire.run(fleet.undeploy(wire.keys, others, forced=True)) == (True, 1)
    assert wire.run(fleet.undeploy(wire.keys, others, forced=False)) == (True, 0)
    assert wire.ask("EXISTS", wire.keys.deploy, wire.keys.due, wire.keys.tenants) == 0
    assert wire.run(requests.submit(wire.keys, TENANT, Request(id="b", inputs=INPUTS))) is None


def test_readers_learn_that_their_stream_was_removed(wire, waiting):
    """The code differs between servers, but never leaves a reader asleep."""
    read = waiting(ingress.read([wire.ingress], "r", 10, 15_000))
    others = [wire.ingress, *fleet.queue_streams(wire.keys, RECORD)]
    until(lambda: _is_blocked(wire), "the reader waits")
    wire.run(fleet.undeploy(wire.keys, others, forced=True))
    with pytest.raises(RefusedError) as caught:
        read.result(PATIENCE_S)
    assert caught.value.code in ("NOGROUP", "UNBLOCKED")


def _is_blocked(wire):
    server = getattr(wire.broker, "server", None)
    if server is not None:
        return bool(server.waiting)
    return b"blocked_clients:1" in wire.ask("INFO", "clients")


def test_models_are_listed_by_name(wire):
    namespace = wire.keys.namespace
    assert wire.run(fleet.models(namespace)) == []
    assert wire.run(fleet.enlist_model(namespace, "b")) == 1
    assert wire.run(fleet.enlist_model(namespace, "a")) == 1
    assert wire.run(fleet.enlist_model(namespace, "a")) == 0
    assert wire.run(fleet.models(namespace)) == ["a", "b"]
    assert wire.run(fleet.delist_model(namespace, "a")) == 1
    assert wire.run(fleet.delist_model(namespace, "a")) == 0
    assert wire.run(fleet.models(namespace)) == ["b"]


# The life of workers.


def test_a_worker_joins_beats_and_leaves(wire):
    keys = wire.keys
    assert wire.run(membership.join(keys, "w1", TTL_MS, {"device": "cpu", "room": "8"}))
    assert not wire.run(membership.join(keys, "w1", TTL_MS, {}))
    assert wire.run(membership.living(keys)) == ["w1"]
    beat = membership.beat(keys, "w1", TTL_MS, {"room": "4"})
    assert [wire.run(beat) for _ in range(2)] == [2, 3]
    assert wire.run(membership.announcement(keys, "w1")) == {"device": b"cpu", "room": b"4"}
    assert 0 < wire.ask("PTTL", keys.worker("w1")) <= TTL_MS
    assert all(wire.run(membership.ring(keys, "w1")) for _ in range(2))
    assert wire.ask("LLEN", keys.worker_bell("w1")) == 1
    assert wire.ask("PTTL", keys.worker_bell("w1")) > 0
    assert wire.run(membership.leave(keys, "w1"))
    assert wire.run(membership.living(keys)) == []
    assert wire.ask("EXISTS", keys.worker("w1"), keys.worker_bell("w1")) == 0
    assert wire.run(membership.beat(keys, "w1", TTL_MS, {})) == 0
    assert not wire.run(membership.join(keys, "w1", TTL_MS, {}))


def test_nothing_is_recreated_of_a_worker_that_is_gone(wire):
    keys = wire.keys
    wire.join()
    assert wire.run(membership.note_inside(keys, "w1", ["t:a", "t:b"])) == 1
    assert wire.run(membership.announcement(keys, "w1"))["inside"] == b"t:a t:b"
    assert wire.run(membership.leave(keys, "w1"))
    assert wire.run(membership.retire(keys, "w1", [wire.queue()]))
    assert wire.run(membership.note_inside(keys, "w1", ["t:a"])) == 0
    assert not wire.run(membership.ring(keys, "w1"))
    assert wire.ask("EXISTS", keys.worker("w1"), keys.worker_bell("w1")) == 0


def test_a_worker_vanishes_from_a_model_without_being_lost(wire):
    wire.join()
    wire.run(membership.ring(wire.keys, "w1"))
    assert wire.executor.run_all(membership.vanish(wire.keys, "w1")) == [1, 1]
    assert wire.executor.run_all(membership.vanish(wire.keys, "w1")) == [0, 0]
    assert wire.ask("SMEMBERS", wire.keys.lost) == []
    assert wire.run(membership.join(wire.keys, "w1", TTL_MS, {}))
