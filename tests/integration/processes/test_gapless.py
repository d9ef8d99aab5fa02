"""`deploy` under load, on real workers: whatever it does, somebody answers all the time."""

import json

import pytest
from support.asking import asked_all_the_time
from support.fleet import check_all_ok, draft_of, until

LOAD_S = 3.0

MODEL = """\
from threading import Event
from batchfleet import Model

class Own(Model):
    def load(self, context):
        self.version = context.version
        Event().wait({load_s})
        {on_load}

    def predict(self, rows, context):
        Event().wait({predict_s})
        return [{{"version": self.version}} for row in rows]
"""


def publish(fleet, version, load_s=0.0, on_load="pass", predict_s=0.0):
    text = MODEL.format(load_s=load_s, on_load=on_load, predict_s=predict_s)
    fleet.publish_code(text, "own", version)


@pytest.fixture
def served(cli, fleet):
    """Two workers and a router, with echo and the first version of a model."""
    publish(fleet, "1")
    fleet.deploy_record("own", fleet.store.manifest("own", "1").record())
    fleet.bring_up(draft_of("echo", "echo"), workers=2, allow_code="own")
    fleet.wait_until_served("own", workers=2)
    return fleet


def states(fleet):
    """What the workers serve of the model, each of them once."""
    return {version for lanes in fleet.lanes("own").values() for version in lanes}


@pytest.mark.slow
def test_nobody_waits_for_a_version_that_loads_nor_for_one_that_fails(served, cli):
    publish(served, "2", load_s=LOAD_S)
    publish(served, "3", load_s=0.5, on_load="raise RuntimeError('no weights')")
    with asked_all_the_time(served, "own") as own, asked_all_the_time(served, "echo") as echo:
        told = json.loads(cli("deploy", "own/2", "--json").stdout)
        assert told["withdrawn"] == ["1"]
        assert served.ask("own").version == "2"
        before = served.operator.deploy_hash("own")
        refused = cli("deploy", "own/3", exit_code=1).stderr
        assert "own/3 was not deployed: 2 of 2 workers refuse it" in refused
        assert "no weights" in refused
        after = served.operator.deploy_hash("own")
        stamp = ("epoch", "nonce")
        assert {**after, **dict.fromkeys(stamp)} == {**before, **dict.fromkeys(stamp)}
        cli("deploy", "own/1")
        assert served.ask("own").version == "1"
    assert max(own) < LOAD_S / 2
    assert max(echo) < LOAD_S / 2
    until(lambda: states(served) == {"1"}, "only the version in service is loaded")


@pytest.mark.slow
def test_what_waits_moves_with_the_switch_and_what_runs_ends_where_it_is(served, cli):
    publish(served, "4", predict_s=1.0)
    publish(served, "5")
    cli("deploy", "own/4")
    cli("deploy", "set", "own", "max_batch_size=1")
    apart = [{"parameters": json.dumps({"n": at})} for at in range(30)]
    ids = served.submit_all("own", apart)
    named = served.submit("own", version="4")
    until(lambda: served.pending("own") >= 2, "some are taken")
    cli("deploy", "own/5")
    until(lambda: states(served) == {"5"}, "the version before is unloaded")
    assert served.items("own", named), "it was answered before its version was withdrawn"
    replies = served.replies("own", [*ids, named])
    check_all_ok(replies)
    versions = [reply.version for reply in replies]
    assert versions[-1] == "4"
    assert versions[0] == "4"
    assert versions.count("5") > 5, "what nobody had taken moved"
    assert served.ask("own", version="4").error["name"] == "unknown_version"


@pytest.mark.slow
def test_worker_by_worker_the_other_one_serves(served, cli):
    publish(served, "6", load_s=0.5)
    with asked_all_the_time(served, "own") as own:
        cli("deploy", "own/6", "--strategy", "worker-by-worker")
        assert served.ask("own").version == "6"
    assert max(own) < LOAD_S / 2
    served.wait_served("own", "6", workers=2)
    until(lambda: states(served) == {"6"}, "only the version in service is loaded")


def test_a_version_that_nobody_can_load_in_time_is_withdrawn(served, cli):
    publish(served, "7", load_s=60)
    told = cli("deploy", "own/7", "--wait", "1", exit_code=1).stderr
    assert "after 1 s, 0 of 2 workers are ready. own/1 keeps serving" in told
    until(lambda: states(served) == {"1"}, "it is not loaded any more")
    check_all_ok([served.ask("own")])


def test_the_first_version_that_nobody_can_load_is_not_deployed(served, cli):
    text = MODEL.format(load_s=0, on_load="raise RuntimeError('no weights')", predict_s=0)
    served.publish_code(text, "other", "1")
    told = cli("deploy", "other/1", exit_code=1).stderr
    assert "other/1 was not deployed: all 2 workers refuse it" in told
    assert served.operator.deploy_hash("other") == {}
    cli("deploy", "echo", "--min-ready", "1")
    assert served.ask("echo").status == "ok"
