"""What operators do while a fleet runs: versions, limits, undeploying, patterns, misfits."""

import pytest
from support.fleet import (
    check_all_ok,
    data_of,
    digests,
    draft_of,
    shared_fleet,
    tokens_draft,
    until,
)

from batchfleet.ops import deployment


@pytest.fixture(scope="module")
def fleet(redis_server, tmp_path_factory):
    folder, lease = tmp_path_factory.mktemp("fleet"), {"lease_ms": 900, "beat_ms": 300}
    drafts = (draft_of("echo", "echo"), tokens_draft("texts"))
    with shared_fleet(redis_server, folder, *drafts, workers=2, **lease) as found:
        yield found


def test_a_second_version_takes_over_without_an_error(fleet, model):
    fleet.serve(draft_of("echo", model), workers=2)
    ids = []
    fleet.deploy(draft_of("echo", model, version="2"))

    def second_answers():
        ids.append(fleet.submit(model, "text"))
        return fleet.reply(model, ids[-1]).version == "2"

    until(second_answers, "the second version answers")
    replies = fleet.replies(model, ids)
    check_all_ok(replies)
    versions = [reply.version for reply in replies]
    assert versions == sorted(versions)
    for version in ("1", "2"):
        reply = fleet.ask(model, "text", version=version)
        assert (reply.version, data_of(reply, "digest")) == (version, digests(["text"], version))


def test_requests_sent_right_after_a_deploy_wait_for_the_version(fleet, model):
    fleet.deploy(draft_of("echo", model))
    ids = fleet.submit_all(model, [{"text": f"text {at}"} for at in range(20)])
    check_all_ok(fleet.replies(model, ids))


def test_a_changed_limit_holds_from_then_on(fleet, model):
    keys = fleet.serve(draft_of("echo", model), workers=2)
    deployment.override(fleet.operator, model, {"max_request_bytes": 100})
    until(
        lambda: (fleet.ask(model, "x" * 200).error or {}).get("name") == "too_large",
        "the router refuses what is too large now",
    )
    deployment.override(fleet.operator, model, {"max_request_bytes": None})
    until(lambda: fleet.ask(model, "x" * 200).status == "ok", "the override is taken back")
    assert not [name for name in fleet.server.hkeys(keys.deploy) if name.startswith(b"set:")]


def test_a_changed_limit_on_content_reaches_the_device_process(fleet, model):
    fleet.serve(tokens_draft(model), workers=2)
    assert fleet.ask(model, ["a", "b", "c"]).status == "ok"
    deployment.override(fleet.operator, model, {"max_rows_per_request": 2, "max_length": 5})

    def both_hold():
        rows, length = (
            fleet.ask(model, ["a", "b", "c"]),
            fleet.ask(model, "x" * 80, truncate="refuse"),
        )
        return rows.error and length.error and (rows.error["name"], length.error["name"])

    assert until(both_hold, "content is held against the new limits", 3) == (
        "too_many_rows",
        "too_long",
    )


def test_undeploying_touches_no_other_model(fleet, model):
    keys = fleet.serve(draft_of("echo", model), workers=2)
    assert fleet.ask(model).status == "ok"
    names = [worker.facts["worker"] for worker in fleet.workers]
    running = fleet.submit_all("echo", [{"text": "!sleep:300"}] * 2)
    deployment.undeploy(fleet.operator, model)
    assert fleet.server.xadd(keys.ingress("default"), {"id": "a"}, nomkstream=True) is None
    until(lambda: not fleet.lanes(model), "the workers leave the model", 3)
    check_all_ok(fleet.replies("echo", running))
    assert sorted(fleet.lanes("echo")) == sorted(names)
    assert not any(worker.events("worker.fenced") for worker in fleet.workers)


def test_a_model_may_be_deployed_again_after_it_was_undeployed(fleet, model):
    fleet.serve(draft_of("echo", model), workers=2)
    deployment.undeploy(fleet.operator, model)
    hashes = [fleet.keys(model).worker(worker.facts["worker"]) for worker in fleet.workers]
    until(lambda: not fleet.server.exists(*hashes), "the workers have left")
    fleet.serve(draft_of("echo", model, version="2"), workers=2)
    assert fleet.ask(model).version == "2"
    assert not any(worker.events("worker.fenced") for worker in fleet.workers)


def test_a_worker_refuses_a_version_for_another_device_and_says_why(fleet, model):
    fleet.deploy(draft_of("echo", model, device="cuda"))
    lanes = until(lambda: list(fleet.lanes(model).values()), "workers look at the model")
    assert lanes[0]["1"]["state"] == "refused"
    assert "cuda" in lanes[0]["1"]["reason"]
    assert fleet.ask("echo").status == "ok"
    deployment.undeploy(fleet.operator, model)


def test_a_worker_takes_only_the_models_of_its_patterns(fleet):
    fleet.serve(draft_of("echo", "only-this"), workers=2)
    extra = fleet.consumer(models="nothing, only-*")
    name = extra.facts["worker"]
    assert extra.facts["models"] == ["only-this"]
    assert name in fleet.lanes("only-this")
    assert name not in fleet.lanes("echo")
    assert extra.stop() == 0
    assert name not in fleet.lanes("only-this")
