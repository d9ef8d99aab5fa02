"""What a command reports is true when it returns: real programs under load, some of them frozen."""

import json
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.fleet import check_all_ok, draft_of, running_fleet, until

from batchfleet.broker import routers
from batchfleet.service.lifecycle import guarded_thread
from batchfleet.wire.keys import router_key

MODEL = "m"
TRIES = 10
MANY_TRIES = 200


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    with running_fleet(
        redis_server, namespace, tmp_path / "fleet", lease_ms=1000, beat_ms=250
    ) as found:
        yield found


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "fleet").mkdir()


@pytest.fixture
def served(fleet):
    """One model on two routers and one worker."""
    fleet.bring_up(draft_of("echo", MODEL), routers=2)
    check_all_ok([fleet.ask(MODEL)])
    return fleet


@contextmanager
def load(fleet):
    """Somebody else asks all the time; what they get is their own affair."""
    over, failures = threading.Event(), []

    def ask():
        while not over.is_set():
            fleet.replies(MODEL, fleet.submit_all(MODEL, [{}] * 20))

    thread = guarded_thread("load", ask, failures.append)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
    assert not failures


def shown(cli, *arguments, **options):
    return json.loads(cli(*arguments, "--json", **options).stdout)


def names(shown_programs, kind):
    return [one["name"] for one in shown_programs["programs"] if one["kind"] == kind]


def error_of(reply):
    return reply.error and reply.error["name"]


def is_accepted(fleet, request_id):
    """Whether a request is open once a router has seen it; fails where it was refused."""
    member = f"default:{request_id}"

    def seen():
        is_open = fleet.server.zscore(fleet.keys(MODEL).due, member) is not None
        return is_open or fleet.items(MODEL, request_id)

    return until(seen, f"{request_id} was read") is True


def check_pause_and_resume(fleet, cli, tries, *wait):
    with load(fleet):
        for _ in range(tries):
            cli("pause", MODEL, "--refuse", *wait)
            assert error_of(fleet.ask(MODEL)) == "unavailable"
            cli("resume", MODEL, *wait)
            assert is_accepted(fleet, fleet.submit(MODEL, delay_ms=30_000))
            check_all_ok([fleet.ask(MODEL)])


@pytest.mark.parametrize("wait", [(), ("--wait", "0")], ids=["wait", "no-wait"])
def test_the_next_request_after_a_pause_is_refused_and_after_its_end_accepted(served, cli, wait):
    """Also where nobody waits: what a router does by an older record is refused."""
    check_pause_and_resume(served, cli, TRIES, *wait)


def test_no_request_is_accepted_after_a_pause_in_many_tries(served, cli):
    check_pause_and_resume(served, cli, MANY_TRIES, "--wait", "5")


def test_limits_hold_for_the_next_request(served, cli):
    large = "x" * 2_000
    with load(served):
        for _ in range(TRIES):
            cli("deploy", "set", MODEL, "max_request_bytes=1000")
            assert error_of(served.ask(MODEL, large)) == "too_large"
            cli("deploy", "set", MODEL, "max_request_bytes=")
            check_all_ok([served.ask(MODEL, large)])


def test_a_model_on_hold_has_nothing_taken_once_the_command_returns(served, cli):
    for _ in range(TRIES):
        cli("pause", MODEL, "--wait", "0")
        request_id = served.submit(MODEL)
        assert is_accepted(served, request_id)
        assert shown(cli, "pause", MODEL)["followed"]
        assert served.pending(MODEL) == 0
        cli("resume", MODEL)
        check_all_ok([served.reply(MODEL, request_id)])


def test_all_programs_have_let_go_of_a_model_that_was_undeployed(served, cli):
    keys = served.keys(MODEL)
    (worker,) = names(shown(cli, "pause", MODEL), "worker")
    cli("resume", MODEL)
    told = shown(cli, "undeploy", MODEL)
    assert (told["followed"], {one["epoch"] for one in told["programs"]}) == (True, {None})
    assert served.server.xadd(keys.ingress("default"), {"id": "a"}, nomkstream=True) is None
    assert not served.server.exists(keys.worker(worker), keys.workers)
    found = served.executor.run(routers.names(served.namespace))
    seen = [served.executor.run(routers.stamps(served.namespace, name)) for name in found]
    assert seen == [{}, {}]


def test_another_version_is_in_force_for_the_next_request(served, cli):
    """Which is why the stable version of a reply is that of the last deployment."""
    for _ in range(2):
        for version in ("2", "1"):
            draft = draft_of("echo", MODEL, version=version)
            if version == "2" and version not in served.store.models().get(MODEL, ()):
                served.store.publish(draft, {})
            cli("deploy", f"{MODEL}/{version}", "--store", served.store.root)
            reply = served.ask(MODEL)
            check_all_ok([reply])
            assert reply.version == version


# Frozen programs.


def frozen_router(fleet, cli):
    """Freeze a router that looks seldom, so that its sign lives for six seconds; its name."""
    before = set(names(shown(cli, "resume", MODEL), "router"))
    router = fleet.router(refresh_ms=2000)
    name = until(
        lambda: next(iter(set(names(shown(cli, "resume", MODEL), "router")) - before), None),
        "it announces itself",
    )
    router.signal(signal.SIGSTOP)
    return router, name


def test_a_frozen_router_is_named_then_left_out_and_does_no_harm(served, cli):
    router, name = frozen_router(served, cli)
    failed = cli("pause", MODEL, "--refuse", "--wait", "1", exit_code=1)
    assert f"did not follow within 1 s: router {name}." in failed.stderr
    assert "is paused" in failed.stdout, "the change is active all the same"
    told = shown(cli, "pause", MODEL, "--refuse", "--wait", "1", exit_code=1)
    assert not told["followed"]
    epochs = {one["name"]: one["epoch"] for one in told["programs"]}
    assert epochs.pop(name) < told["epoch"]
    assert set(epochs.values()) == {told["epoch"]}
    key = router_key(served.namespace, name)
    until(lambda: not served.server.exists(key), "its sign of life has expired")
    passed = cli("pause", MODEL, "--refuse")
    assert f"not waited for, without a heartbeat: router {name};" in passed.stderr
    assert name not in cli("pause", MODEL, "--refuse").stderr, "it is named once"
    router.signal(signal.SIGCONT)
    replies = served.replies(MODEL, served.submit_all(MODEL, [{}] * 100))
    assert {error_of(reply) for reply in replies} == {"unavailable"}
    until(lambda: served.server.exists(key), "it is there again")
    told = shown(cli, "resume", MODEL)
    assert name in names(told, "router")
    assert told["followed"]
    check_all_ok(served.replies(MODEL, served.submit_all(MODEL, [{}] * 100)))


def is_stopped(program):
    stat = Path(f"/proc/{program.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("commands", [["pause"], ["resume", "pause"]], ids=["once", "twice"])
def test_a_router_that_wakes_up_just_before_it_accepts_reads_the_record_again(fleet, cli, commands):
    """What it was about to do was right when it fell asleep."""
    fleet.deploy(draft_of("echo", MODEL))
    router = fleet.start("router", faults="router.before_accept=stop@1").wait_until_ready()
    fleet.wait_routed(MODEL)
    request_id = fleet.submit(MODEL)
    until(lambda: is_stopped(router), "it stands before accept")
    for command in commands:
        cli(command, MODEL, *(["--refuse"] if command == "pause" else []), "--wait", "0")
    router.signal(signal.SIGCONT)
    assert error_of(fleet.reply(MODEL, request_id)) == "unavailable"
    assert fleet.runs(MODEL) == 0


def test_a_router_that_wakes_up_in_another_life_of_the_model_accepts_by_its_record(fleet, cli):
    keys = fleet.deploy(draft_of("echo", MODEL))
    router = fleet.start("router", faults="router.before_accept=stop@1").wait_until_ready()
    fleet.wait_routed(MODEL)
    large = fleet.submit(MODEL, "x" * 2_000)
    until(lambda: is_stopped(router), "it stands before accept")
    cli("undeploy", MODEL, "--force", "--wait", "0")
    fleet.deploy_record(MODEL, fleet.store.manifest(MODEL, "1").record())
    cli("deploy", "set", MODEL, "max_request_bytes=1000", "--wait", "0")
    router.signal(signal.SIGCONT)
    assert error_of(fleet.reply(MODEL, large)) == "too_large"
    assert fleet.server.zcard(keys.due) == 0


def test_a_frozen_worker_is_named_then_left_out_and_takes_nothing(served, cli):
    worker = served.programs[-1]
    (name,) = names(shown(cli, "resume", MODEL), "worker")
    worker.signal(signal.SIGSTOP)
    failed = cli("pause", MODEL, "--wait", "1", exit_code=1)
    assert f"did not follow within 1 s: worker {name}." in failed.stderr
    waiting = served.submit_all(MODEL, [{}] * 20)
    assert all(is_accepted(served, one) for one in waiting)
    until(lambda: not served.server.exists(served.keys(MODEL).worker(name)), "its hash expires")
    passed = cli("pause", MODEL)
    assert f"not waited for, without a heartbeat: worker {name};" in passed.stderr
    worker.signal(signal.SIGCONT)
    until(lambda: names(shown(cli, "pause", MODEL), "worker") and all_heard(cli), "it beats again")
    assert served.pending(MODEL) == 0
    assert served.open_requests(MODEL) == len(waiting)
    cli("resume", MODEL)
    check_all_ok(served.replies(MODEL, waiting))


def all_heard(cli):
    return not any(one["silent"] for one in shown(cli, "pause", MODEL)["programs"])


# Routers that come and go.


def test_without_a_router_it_is_said_and_the_command_has_done_its_work(fleet, cli):
    fleet.deploy(draft_of("echo", MODEL))
    fleet.consumer()
    fleet.wait_served(MODEL)
    for command in ("pause", "resume"):
        told = cli(command, MODEL)
        assert "no router is running; requests wait until one starts" in told.stderr
    assert "no router is running" in cli("status").stdout


def test_a_router_is_seen_until_it_stops_or_is_killed(served, cli):
    first, second = served.programs[:2]
    epochs_seen = shown(cli, "status")["routers"]
    assert len(epochs_seen) == 2
    assert all(MODEL in epochs for epochs in epochs_seen.values())
    assert first.stop() == 0
    assert len(shown(cli, "status")["routers"]) == 1, "gone at once"
    second.kill()
    until(lambda: not shown(cli, "status")["routers"], "gone after three refreshes")
    assert served.executor.run(routers.names(served.namespace)) == []
