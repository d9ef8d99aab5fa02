"""`requests`, `dead`, `pause` and `resume` on a server where a test plays router and worker."""

import json

import pytest
from support.broker_wire import INPUTS, RECORD, TENANT, Wire

from batchfleet.broker import fleet, requests
from batchfleet.broker.redis_broker import RedisBroker
from batchfleet.broker.requests import Accepted
from batchfleet.wire.codec import JSON
from batchfleet.wire.errors import ErrorBody, ErrorKind
from batchfleet.wire.keys import ModelKeys
from batchfleet.wire.limits import INLINE_BYTES_DEFAULT
from batchfleet.wire.reply import Envelope, Receipt, encode_error
from batchfleet.wire.request import parse_request

HOUR_MS = 3_600_000


@pytest.fixture
def wire(redis_server, namespace):
    """A deployed model `m`, without any program."""
    broker = RedisBroker(redis_server.socket_url)
    keys = ModelKeys(namespace, "m")
    with broker.connect("test") as executor:
        streams = fleet.queue_streams(keys, RECORD)
        executor.run(fleet.deploy(keys, RECORD, streams, "n", [TENANT]))
        executor.run(fleet.enlist_model(namespace, "m"))
        yield Wire(broker, executor, keys)


def shown(cli, *arguments, **options):
    return json.loads(cli(*arguments, "--json", **options).stdout)


def give_up(wire, request_id, inputs=INPUTS, worker="w1", **changes):
    """Open, take and give up a request as `poison`, as a worker does."""
    wire.open(request_id, inputs=inputs, **changes)
    (work,) = wire.take(worker)
    envelope = Envelope(id=request_id, tenant=TENANT, accept=JSON, model="m", version="1")
    error = ErrorBody(ErrorKind.POISON, "it ended the device process")
    reply = encode_error(envelope, error, Receipt(attempt=3))
    end = wire.end(request_id, reply, work.stream, work.entry_id)
    wire.finish(worker, end._replace(status="error", is_dead=True))


# requests list, show


def test_open_requests_are_listed_where_they_lie(cli, wire):
    wire.open("taken", retries=2, timeout_ms=10_000)
    wire.join("w1")
    wire.take("w1")
    wire.open("waiting", bucket=32, timeout_ms=20_000)
    wire.open("parked", delay_ms=HOUR_MS)
    wire.open("lost", bucket=64, timeout_ms=30_000)
    wire.ask("DEL", wire.queue(64))
    told = shown(cli, "requests", "list", "m")
    assert told["more"] == 0
    listed = {one["id"]: one for one in told["requests"]}
    assert list(listed) == ["taken", "waiting", "lost", "parked"], "the next due first"
    assert {name: one["place"] for name, one in listed.items()} == {
        "taken": "taken",
        "waiting": "waiting",
        "lost": "nowhere",
        "parked": "parked",
    }
    assert (listed["taken"]["worker"], listed["taken"]["retries_left"]) == ("w1", 2)
    assert (listed["waiting"]["queue"], listed["waiting"]["version"]) == ("normal:32", "1")
    assert listed["parked"]["until_ms"] > wire.now_ms() + HOUR_MS - 60_000
    text = cli("requests", "list", "m").stdout
    assert "waiting in normal:32" in text
    assert "taken by w1" in text
    assert "parked until" in text
    assert "4 open requests" in text


def test_what_others_opened_or_parked_is_not_listed(cli, wire):
    wire.open("a")
    wire.ask("ZADD", wire.keys.due, HOUR_MS, "nobody", HOUR_MS, f"{TENANT}:b")
    fields = ("id", "b", "tenant", TENANT, "inputs", "x", "deadline", HOUR_MS)
    wire.ask("XADD", wire.keys.parked, "*", *fields, "queue", "elsewhere")
    told = shown(cli, "requests", "list", "m")
    assert {one["id"]: one["place"] for one in told["requests"]} == {"a": "waiting", "b": "nowhere"}


def test_a_list_is_cut_and_says_so(cli, wire):
    wire.open("a", "b", "c")
    told = shown(cli, "requests", "list", "m", "--limit", "2")
    assert ([one["id"] for one in told["requests"]], told["more"]) == (["a", "b"], 1)
    assert "1 not shown" in cli("requests", "list", "m", "--limit", "2").stdout


def test_a_list_is_filtered(cli, wire):
    wire.open("a", "b")
    wire.open("later", delay_ms=HOUR_MS)
    parked = shown(cli, "requests", "list", "m", "--place", "parked")
    assert [one["id"] for one in parked["requests"]] == ["later"]
    assert shown(cli, "requests", "list", "m", "--tenant", "acme")["requests"] == []
    assert len(shown(cli, "requests", "list", "m", "--tenant", TENANT)["requests"]) == 3


def test_a_list_of_no_requests_and_of_an_unknown_model(cli, wire):
    assert cli("requests", "list", "m").stdout == "0 open requests\n"
    assert "unknown_model (110)" in cli("requests", "list", "other", exit_code=1).stderr


def test_an_open_request_is_shown_with_its_place_and_counts(cli, wire):
    wire.open("a", retries=2)
    wire.join("w1")
    (work,) = wire.take("w1")
    wire.retry(work)
    view = shown(cli, "requests", "show", "m", "a")
    assert (view["state"], view["open"]["place"]) == ("accepted", "parked")
    assert (view["open"]["attempt"], view["open"]["retries_left"]) == (2, 1)
    text = cli("requests", "show", "m", "a").stdout
    assert "parked until" in text
    assert "attempt   2, 1 left" in text


# requests cancel, purge


def test_requests_are_cancelled_and_each_fate_is_told(cli, wire):
    wire.open("open", "ended")
    wire.expire("ended")
    told = shown(cli, "requests", "cancel", "m", "open", "ended", "never", "open")
    assert [(one["id"], one["cancelled"], one["state"]) for one in told] == [
        ("open", True, "cancelled"),
        ("ended", False, "ok"),
        ("never", False, "unknown"),
    ]
    (reply,) = wire.replies("open")
    assert json.loads(reply)["status"] == "cancelled"
    wire.join()
    assert wire.take() == []
    text = cli("requests", "cancel", "m", "open", "never", exit_code=1).stdout
    assert "open  already ended: cancelled" in text
    assert "never  unknown" in text


def test_an_unknown_id_that_was_cancelled_runs_when_it_comes(cli, wire):
    cli("requests", "cancel", "m", "a", exit_code=1)
    assert wire.send("a") is Accepted.OK
    assert wire.replies("a") == []


def test_a_purge_asks_and_cancels_all(cli, wire):
    names = [f"r{at}" for at in range(70)]
    wire.open(*names)
    wire.open("later", delay_ms=HOUR_MS)
    told = cli("requests", "purge", "m", exit_code=1, input="n\n")
    assert "cancel 71 open requests of m?" in told.stderr
    assert wire.ask("ZCARD", wire.keys.due) == 71
    cli("requests", "purge", "m", exit_code=1)
    assert wire.ask("ZCARD", wire.keys.due) == 71, "nobody was there to say yes"
    told = shown(cli, "requests", "purge", "m", "--yes")
    assert told == {"model": "m", "cancelled": 71, "ended": 0}
    assert wire.ask("ZCARD", wire.keys.due) == 0
    assert {json.loads(wire.replies(name)[0])["status"] for name in names} == {"cancelled"}
    assert cli("requests", "purge", "m").stdout == "0 cancelled, 0 had already ended\n"


def test_a_purge_may_spare_the_young_and_other_tenants(cli, wire):
    wire.open("a")
    assert shown(cli, "requests", "purge", "m", "--older-than", "60", "--yes")["cancelled"] == 0
    assert shown(cli, "requests", "purge", "m", "--tenant", "acme", "--yes")["cancelled"] == 0
    assert shown(cli, "requests", "purge", "m", "--older-than", "0", "--yes")["cancelled"] == 1


# dead


def test_letters_are_listed_and_shown(cli, wire):
    wire.join("w1")
    give_up(wire, "a")
    give_up(wire, "b", rows=3)
    told = shown(cli, "dead", "list", "m")
    assert [one["id"] for one in told["letters"]] == ["b", "a"]
    first = told["letters"][1]
    assert (first["tenant"], first["version"], first["error"]) == (TENANT, "1", "poison")
    assert (first["attempts"], first["message"]) == (3, "it ended the device process")
    text = cli("dead", "list", "m", "--limit", "1").stdout
    assert "poison" in text
    assert "2 dead letters, 1 not shown" in text
    letter = shown(cli, "dead", "show", "m", "b")
    assert (letter["rows"], letter["inputs"]) == (3, ["text  1 texts", '  "hello"'])
    assert letter["reply"]["error"]["name"] == "poison"
    assert '"hello"' in cli("dead", "show", "m", "a").stdout
    assert "unknown_request (112)" in cli("dead", "show", "m", "never", exit_code=1).stderr


def test_inputs_that_cannot_be_read_are_shown_as_such(cli, wire):
    wire.join("w1")
    give_up(wire, "a", inputs=b"\xff{")
    assert "cannot be decoded" in cli("dead", "show", "m", "a").stdout


def test_what_others_wrote_is_no_letter(cli, wire):
    wire.join("w1")
    give_up(wire, "a")
    wire.ask("XADD", wire.keys.dead, "*", "stream", "x:y", "reply", "nonsense")
    wire.ask("XADD", wire.keys.dead, "*", "written", "by hand")
    told = shown(cli, "dead", "list", "m")
    assert [one["id"] for one in told["letters"]] == ["a"]
    assert shown(cli, "dead", "replay", "m", "--all")["failed"] == []


def ingress(wire):
    entries = wire.ask("XRANGE", wire.ingress, "-", "+")
    return [parse_request(flat, 1 << 24) for _, flat in entries]


def test_a_letter_is_replayed_under_a_new_id_with_its_retries(cli, wire):
    wire.join("w1")
    give_up(wire, "a", retries=2, rows=3)
    assert cli("dead", "replay", "m", "a").stdout == "a → a.r1\n"
    (request,) = ingress(wire)
    assert (request.id, request.inputs, request.retries, request.rows) == ("a.r1", INPUTS, 2, 3)
    assert shown(cli, "dead", "list", "m")["letters"] == []
    assert "unknown_request" in cli("dead", "replay", "m", "a", exit_code=1).stderr


def test_a_second_replay_counts_on(cli, wire):
    wire.join("w1")
    give_up(wire, "a")
    wire.open("a.r1")
    assert cli("dead", "replay", "m", "a").stdout == "a → a.r2\n"
    wire.ask("DEL", wire.ingress)
    wire.run(fleet.deploy(wire.keys, RECORD, fleet.queue_streams(wire.keys, RECORD), "n", [TENANT]))
    wire.expire("a.r1")
    give_up(wire, "a.r2")
    assert cli("dead", "replay", "m", "a.r2").stdout == "a.r2 → a.r3\n"


def test_all_letters_are_replayed_the_oldest_first_and_none_joins_another(cli, wire):
    wire.join("w1")
    give_up(wire, "a")
    wire.ask("DEL", wire.tombstone("a"), wire.reply_key("a"))
    give_up(wire, "a")
    give_up(wire, "b")
    told = shown(cli, "dead", "replay", "m", "--all")
    assert [one["new_id"] for one in told["replayed"]] == ["a.r1", "a.r2", "b.r1"]
    assert [request.id for request in ingress(wire)] == ["a.r1", "a.r2", "b.r1"]


def test_large_inputs_are_replayed_under_a_blob_key(cli, wire):
    large = b'{"text": ["' + b"x" * INLINE_BYTES_DEFAULT + b'"]}'
    wire.join("w1")
    give_up(wire, "a", inputs=large)
    cli("dead", "replay", "m", "a")
    (request,) = ingress(wire)
    assert (request.inputs_at, request.inputs_bytes) == ("blob", len(large))
    assert wire.run(requests.blob(wire.keys, TENANT, "a.r1", 1 << 24)) == large
    assert wire.ask("PTTL", wire.keys.blob(TENANT, "a.r1")) > 60_000


def test_a_letter_stays_where_it_cannot_be_replayed(cli, wire):
    large = b"x" * (INLINE_BYTES_DEFAULT + 1)
    wire.join("w1")
    give_up(wire, "a", inputs=large)
    wire.ask("DEL", wire.ingress)
    told = cli("dead", "replay", "m", "a", exit_code=1).stderr
    assert "not deployed for tenant default" in told
    assert not wire.ask("EXISTS", wire.keys.blob(TENANT, "a.r1"))
    assert len(shown(cli, "dead", "list", "m")["letters"]) == 1


def test_a_letter_whose_inputs_are_gone_is_told(cli, wire):
    wire.join("w1")
    give_up(wire, "a", inputs_at="blob")
    assert "inputs have expired" in cli("dead", "replay", "m", "a", exit_code=1).stderr
    assert shown(cli, "dead", "show", "m", "a")["inputs"] == ["at blob"]


@pytest.mark.parametrize("arguments", [(), ("a", "--all")])
def test_replay_wants_ids_or_all(cli, wire, arguments):
    assert "either ids or --all" in cli("dead", "replay", "m", *arguments, exit_code=2).stderr


def test_letters_are_purged(cli, wire):
    wire.join("w1")
    give_up(wire, "a")
    assert shown(cli, "dead", "purge", "m", "--older-than", "3600", "--yes")["removed"] == 0
    assert "delete those of 1" in cli("dead", "purge", "m", exit_code=1, input="n\n").stderr
    assert shown(cli, "dead", "purge", "m", "--yes") == {"model": "m", "removed": 1}
    assert cli("dead", "list", "m").stdout == "0 dead letters\n"


# pause, resume


def intake(cli):
    (model,) = shown(cli, "status")["models"]
    return model["intake"]


def test_a_model_is_paused_and_resumed(cli, wire):
    epoch = shown(cli, "pause", "m")["epoch"]
    assert intake(cli) == "hold"
    assert "m is paused: requests wait" in cli("status").stdout
    assert shown(cli, "pause", "m", "--refuse")["epoch"] == epoch + 1
    assert intake(cli) == "refuse"
    assert "batchfleet resume m" in cli("pause", "m").stdout
    cli("resume", "m")
    assert intake(cli) == "open"
    assert "paused" not in cli("status").stdout
    for command in ("pause", "resume"):
        assert "unknown_model" in cli(command, "other", exit_code=1).stderr


def test_deploying_a_version_does_not_end_a_pause(cli, wire):
    cli("pause", "m")
    wire.run(fleet.deploy(wire.keys, RECORD, fleet.queue_streams(wire.keys, RECORD), "n", [TENANT]))
    assert intake(cli) == "hold"
