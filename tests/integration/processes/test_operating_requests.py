"""Single requests on a real fleet: delays, taking back, retries, dead letters, pauses, losses."""

import secrets
from time import monotonic

import pytest
from support.fleet import check_all_ok, draft_of, limits, shared_fleet, until

from batchfleet.broker import fleet as commands
from batchfleet.broker import ingress
from batchfleet.ops import dead_letters, deployment, open_requests
from batchfleet.ops.deployment import require_deployment
from batchfleet.wire.reply import decode_reply

MODEL = "m"
FLAKY = """\
from pathlib import Path
from batchfleet import Model

class Flaky(Model):
    def predict(self, rows, context):
        return [self.run(*row["text"].split()) for row in rows]

    def run(self, counter, failures):
        path = Path(counter)
        runs = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(runs))
        if runs <= int(failures):
            raise ValueError(f"run {runs} fails")
        return {"runs": runs}
"""


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    """A fleet with one worker, and no model yet."""
    folder, draft = tmp_path_factory.mktemp("fleet"), draft_of("echo", "spare")
    with shared_fleet(redis_server, folder, draft, allow_code="own") as found:
        yield found


@pytest.fixture
def model(fleet):
    """A model of this test alone, which runs one request at a time."""
    name = f"m{secrets.token_hex(4)}"
    fleet.serve(draft_of("echo", name, limits=limits(max_batch_size=1)))
    yield name
    fleet.wait_idle(name)


def named(fleet, model, text="hello", **fields):
    """Submit under an id of our own; returns it."""
    return fleet.submit(model, text, id=f"r-{secrets.token_hex(8)}", **fields)


def take_back(fleet, model, request_id):
    """What a caller does with `redis-cli`."""
    stream = fleet.keys(model).ingress("default")
    fleet.server.xadd(stream, {"id": request_id, "cancel": 1}, nomkstream=True)


def record_of(fleet, model):
    return require_deployment(model, fleet.operator.deploy_hash(model))


def cancel(fleet, model, *ids):
    """What an operator does."""
    named = [("default", one) for one in ids]
    return open_requests.cancel(fleet.executor, fleet.keys(model), record_of(fleet, model), named)


def is_open(fleet, model, request_id):
    return fleet.server.zscore(fleet.keys(model).due, f"default:{request_id}") is not None


def listed(fleet, model):
    record = record_of(fleet, model)
    found = open_requests.open_requests(fleet.executor, fleet.keys(model), record)
    return {one.id: one for one in found}


def busy(fleet, model, ms=1500):
    """Have the worker run something that takes a while."""
    request_id = named(fleet, model, f"!sleep:{ms}")
    until(lambda: fleet.pending(model) > 0, "the worker is busy")
    return request_id


# Delays.


def test_a_delay_is_kept(fleet, model):
    started = monotonic()
    delayed = named(fleet, model, delay_ms=700)
    until(lambda: is_open(fleet, model, delayed), "it is accepted")
    assert fleet.ask(model).status == "ok", "others do not wait for it"
    assert not fleet.items(model, delayed)
    assert fleet.reply(model, delayed).status == "ok"
    assert monotonic() - started >= 0.7
    assert fleet.server.xlen(fleet.keys(model).parked) == 0


def test_the_time_out_begins_after_the_delay(fleet, model):
    delayed = named(fleet, model, delay_ms=700, timeout_ms=400)
    assert fleet.reply(model, delayed).status == "ok"


def test_a_delayed_request_follows_its_version_when_that_is_replaced(fleet):
    name = f"m{secrets.token_hex(4)}"
    fleet.serve(draft_of("echo", name))
    plain = named(fleet, name, delay_ms=1500)
    insists = named(fleet, name, delay_ms=1500, version="1")
    until(lambda: len(listed(fleet, name)) == 2, "both are parked")
    fleet.serve(draft_of("echo", name, version="2"))
    assert deployment.withdraw(fleet.operator, name, "1") == 0
    assert fleet.reply(name, plain).version == "2"
    assert fleet.reply(name, insists).error["name"] == "unknown_version"
    fleet.wait_idle(name)
    assert fleet.server.xlen(fleet.keys(name).parked) == 0


def test_what_waits_follows_a_switch_and_comes_back_with_it(fleet):
    """Only what named the first version is run by it after the switch."""
    name = f"m{secrets.token_hex(4)}"
    fleet.serve(draft_of("echo", name))
    fleet.serve(draft_of("echo", name, version="2"))
    for stable, other in (("1", "2"), ("2", "1")):
        deployment.set_intake(fleet.operator, name, "hold")
        plain = [named(fleet, name) for _ in range(20)]
        insists = named(fleet, name, version=other)
        until(lambda: len(listed(fleet, name)) == 21, "all wait")
        keys, fields = fleet.keys(name), {"stable": stable.encode()}
        assert fleet.executor.run(commands.configure(keys, fields, (), secrets.token_hex(4))) > 0
        left = keys.queue(other, "normal", 0)
        until(lambda left=left: fleet.server.xlen(left) == 1, "all but one have moved")
        deployment.set_intake(fleet.operator, name, "open")
        assert {fleet.reply(name, one).version for one in plain} == {stable}
        assert fleet.reply(name, insists).version == other
    counts = fleet.executor.run(commands.stats(fleet.keys(name)))
    assert {version: found.ok for version, found in counts.items()} == {"1": 21, "2": 21}


# Taking back.


def test_a_request_is_taken_back_while_it_waits(fleet, model):
    running = busy(fleet, model)
    waiting = [named(fleet, model) for _ in range(8)]
    until(lambda: all(is_open(fleet, model, one) for one in waiting), "all are accepted")
    for one in waiting:
        take_back(fleet, model, one)
    assert {fleet.reply(model, one).status for one in waiting} == {"cancelled"}
    assert fleet.reply(model, running).status == "ok"
    fleet.wait_idle(model)
    assert all(len(fleet.items(model, one)) == 1 for one in waiting)


def test_a_request_and_its_taking_back_in_one_go(fleet, model):
    """A router reads both at once: neither overtakes the other."""
    keys = fleet.keys(model)
    ids = [f"r-{secrets.token_hex(8)}" for _ in range(5)]
    running = busy(fleet, model)
    with fleet.server.pipeline(transaction=True) as pipe:
        for one in ids:
            pipe.xadd(keys.ingress("default"), {"id": one, "inputs": '{"text": ["x"]}'})
            pipe.xadd(keys.ingress("default"), {"id": one, "cancel": 1})
        pipe.execute()
    assert {fleet.reply(model, one).status for one in ids} == {"cancelled"}
    assert fleet.reply(model, running).status == "ok"


def test_an_unknown_id_that_is_taken_back_runs_when_it_comes(fleet, model):
    request_id = f"r-{secrets.token_hex(8)}"
    take_back(fleet, model, request_id)
    until(lambda: fleet.ingress_length(model) == 0, "a router has seen it")
    keys = fleet.keys(model)
    assert not fleet.server.exists(
        keys.reply("default", request_id), keys.tombstone("default", request_id)
    )
    assert fleet.ask(model, id=request_id).status == "ok"


def test_what_runs_is_answered_or_cancelled_and_never_both(fleet, model):
    for pause_ms in (0, 20, 60):
        running = named(fleet, model, "!sleep:40")
        until(lambda one=running: is_open(fleet, model, one), "it is accepted")
        deadline = monotonic() + pause_ms / 1000
        until(lambda at=deadline: monotonic() >= at, "it has run for a while")
        (told,) = cancel(fleet, model, running)
        status = fleet.reply(model, running).status
        assert status == ("cancelled" if told.was_open else "ok")
        fleet.wait_idle(model)
        assert [decode_reply(raw).status for raw in fleet.items(model, running)] == [status]


def test_a_parked_request_is_cancelled_and_does_not_run(fleet, model):
    delayed = named(fleet, model, delay_ms=500)
    until(lambda: is_open(fleet, model, delayed), "it is accepted")
    assert listed(fleet, model)[delayed].place is open_requests.Place.PARKED
    assert [one.was_open for one in cancel(fleet, model, delayed)] == [True]
    until(lambda: fleet.server.xlen(fleet.keys(model).parked) == 0, "its body is gone in time")
    assert fleet.runs(model) == 0
    assert fleet.reply(model, delayed).status == "cancelled"


# Retries.


@pytest.fixture(scope="module")
def flaky(fleet):
    """A model that fails as often as each request says."""
    fleet.deploy_code(FLAKY, "flaky")
    fleet.wait_until_served("flaky")
    return "flaky"


def counter(tmp_path):
    return tmp_path / f"runs-{secrets.token_hex(4)}"


def test_a_request_that_fails_twice_is_answered_the_third_time(fleet, flaky, tmp_path):
    path = counter(tmp_path)
    reply = fleet.reply(flaky, named(fleet, flaky, f"{path} 2", retries=3))
    assert reply.status == "ok"
    assert reply.receipt["attempt"] == 3
    assert path.read_text() == "3"
    assert len(fleet.workers[0].events("request.retried")) >= 2


def test_retries_that_are_used_up_end_in_a_dead_letter(fleet, flaky, tmp_path):
    path = counter(tmp_path)
    request_id = named(fleet, flaky, f"{path} 99", retries=1, meta="mine")
    reply = fleet.reply(flaky, request_id)
    assert (reply.error["name"], reply.meta) == ("attempts_exhausted", "mine")
    assert path.read_text() == "2"
    letter = dead_letters.find_letter(fleet.executor, fleet.keys(flaky), "default", request_id)
    assert (letter.attempts, letter.entry.meta) == (2, "mine")
    assert str(path) in letter.entry.inputs.decode()


def test_without_retries_a_failure_is_the_answer_and_leaves_no_letter(fleet, flaky, tmp_path):
    keys = fleet.keys(flaky)
    before = fleet.server.xlen(keys.dead)
    reply = fleet.reply(flaky, named(fleet, flaky, f"{counter(tmp_path)} 1"))
    assert reply.error["name"] == "model_error"
    assert fleet.server.xlen(keys.dead) == before


def test_a_retry_that_would_come_too_late_is_not_waited_for(fleet, flaky, tmp_path):
    path = counter(tmp_path)
    request_id = named(fleet, flaky, f"{path} 9", retries=9, timeout_ms=300)
    assert fleet.reply(flaky, request_id, timeout_s=1).error["name"] == "model_error"
    assert path.read_text() == "1"


def test_a_replayed_letter_runs_again_and_is_answered(fleet, flaky, tmp_path):
    path = counter(tmp_path)
    request_id = named(fleet, flaky, f"{path} 2", retries=1)
    assert fleet.reply(flaky, request_id).error["name"] == "attempts_exhausted"
    keys = fleet.keys(flaky)
    letter = dead_letters.find_letter(fleet.executor, keys, "default", request_id)
    new_id = dead_letters.replay(fleet.executor, keys, letter, set())
    assert new_id == f"{request_id}.r1"
    assert fleet.reply(flaky, new_id).status == "ok"
    assert decode_reply(fleet.items(flaky, request_id)[0]).status == "error"


def test_poison_ends_in_a_dead_letter(fleet, model):
    request_id = named(fleet, model, "!segv")
    assert fleet.reply(model, request_id).error["name"] == "poison"
    keys = fleet.keys(model)
    letter = dead_letters.find_letter(fleet.executor, keys, "default", request_id)
    assert letter.to_json()["error"] == "poison"
    assert dead_letters.purge_letters(fleet.executor, keys) == 1
    fleet.wait_served(model)


# Pauses.


def test_a_paused_model_accepts_and_waits(fleet, model):
    deployment.set_intake(fleet.operator, model, "hold")

    def waits():
        """A take that was under way when it was paused may still hand over one."""
        request_id = named(fleet, model)
        until(lambda: is_open(fleet, model, request_id) or fleet.items(model, request_id), "seen")
        return is_open(fleet, model, request_id) and listed(fleet, model).get(request_id)

    waiting = until(waits, "the worker takes nothing more")
    assert fleet.ask("spare").status == "ok", "other models are served"
    deployment.set_intake(fleet.operator, model, "open")
    assert fleet.reply(model, waiting.id).status == "ok"


def test_a_model_that_refuses_answers_what_it_has(fleet, model):
    running = busy(fleet, model, 600)
    waiting = named(fleet, model)
    until(lambda: is_open(fleet, model, waiting), "it is accepted")
    deployment.set_intake(fleet.operator, model, "refuse")

    def refused():
        error = fleet.ask(model).error
        return error and error["name"] == "unavailable" and error["retry_after_ms"] > 0

    until(refused, "new requests are refused")
    check_all_ok(fleet.replies(model, [running, waiting]))
    deployment.set_intake(fleet.operator, model, "open")
    until(lambda: fleet.ask(model).status == "ok", "it is served again")


def test_a_purge_ends_all_that_waits(fleet, model):
    running = busy(fleet, model, 1000)
    waiting = [named(fleet, model) for _ in range(100)]
    until(lambda: all(is_open(fleet, model, one) for one in waiting), "all are accepted")
    assert set(waiting) <= set(listed(fleet, model))
    assert all(one.was_open for one in cancel(fleet, model, *waiting))
    assert {reply.status for reply in fleet.replies(model, waiting)} == {"cancelled"}
    assert fleet.reply(model, running).status == "ok"


# Dead routers.


def test_a_router_that_is_gone_is_forgotten_by_another(fleet, model):
    keys = fleet.keys(model)
    fleet.server.xgroup_createconsumer(keys.ingress("default"), "router", "gone")

    def forgotten():
        # One that reads comes by once a second.
        fleet.executor.run(ingress.prune_readers(keys, "default", 2500))
        known = fleet.server.xinfo_consumers(keys.ingress("default"), "router")
        return b"gone" not in {one["name"] for one in known} and known

    assert until(forgotten, "it has been idle for long enough"), "the living one is kept"
    assert fleet.ask(model).status == "ok"
