"""What goes wrong inside a worker: stops, dying and hanging device processes, freezes."""

import os
import signal

import pytest
from support.fleet import check_all_ok, draft_of, limits, tokens_draft, until

MODEL = "m"


def check_nothing_left(fleet):
    fleet.wait_idle(MODEL)
    assert fleet.pending(MODEL) == 0
    assert fleet.server.xpending(fleet.keys(MODEL).ingress("default"), "router")["pending"] == 0


def wait_for_beats(fleet, worker, count):
    """Wait until a worker has beaten so often: whatever it was about to do is done."""
    workers, name = fleet.keys(MODEL).workers, worker.facts["worker"]
    before = fleet.server.zscore(workers, name)
    until(lambda: fleet.server.zscore(workers, name) >= before + count, "the worker beats", 3)


def test_a_worker_told_to_stop_finishes_what_it_holds(fleet):
    first, second = fleet.bring_up(
        draft_of("echo", MODEL, limits=limits(max_batch_size=4)), workers=2
    )
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:10"}] * 200)
    until(lambda: fleet.items(MODEL, ids[10]), "work is under way")
    assert first.stop() == 0
    replies = fleet.replies(MODEL, ids)
    check_all_ok(replies)
    assert {reply.receipt["attempt"] for reply in replies} == {1}
    workers = {reply.receipt["batch"].rpartition(":")[0] for reply in replies}
    assert workers == {first.facts["worker"], second.facts["worker"]}
    check_nothing_left(fleet)
    assert first.facts["worker"] not in fleet.lanes(MODEL)
    lost = fleet.keys(MODEL).lost
    until(lambda: not fleet.server.exists(lost), "its peer has found nothing left behind")


def test_a_worker_that_hangs_exits_within_its_grace(fleet):
    (worker,) = fleet.bring_up(draft_of("echo", MODEL), grace_ms=1000)
    fleet.submit(MODEL, "!hang")
    until(lambda: fleet.pending(MODEL) == 1, "the worker hangs")
    assert worker.stop(timeout_s=5) is not None


@pytest.mark.slow
def test_requests_inside_a_killed_device_process_are_answered(fleet):
    (worker,) = fleet.bring_up(tokens_draft(MODEL, max_batch_size=8), beat_ms=100)
    blocker = fleet.submit(MODEL, "!sleep:1500")
    until(lambda: fleet.pending(MODEL) == 1, "the device is busy")
    ids = fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(8)])
    until(lambda: fleet.pending(MODEL) == 9, "the worker holds all of them")
    wait_for_beats(fleet, worker, 2)
    os.kill(worker.device_pid(), signal.SIGKILL)
    replies = fleet.replies(MODEL, [blocker, *ids])
    check_all_ok(replies)
    assert {reply.receipt["attempt"] for reply in replies} == {2}
    assert {reply.receipt["release"] for reply in replies} == {"alone"}
    check_nothing_left(fleet)
    assert worker.is_running()
    (lost,) = worker.events("device.lost")
    assert "SIGKILL" in lost["reason"]
    assert lost["suspects"] == 9


def test_what_waits_behind_a_culprit_is_answered(fleet):
    """It waits in the worker while the device process dies twice, and is in it neither time."""
    fleet.bring_up(draft_of("echo", MODEL, limits=limits(max_batch_size=4)))
    culprit = fleet.submit(MODEL, "!segv")
    ids = fleet.submit_all(MODEL, [{"text": f"text {at}"} for at in range(40)])
    check_all_ok(fleet.replies(MODEL, ids))
    assert fleet.reply(MODEL, culprit).error["name"] == "poison"
    check_nothing_left(fleet)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_only_the_culprit_of_a_crash_fails(fleet, stage):
    (worker,) = fleet.bring_up(draft_of("echo", MODEL))
    blocker = fleet.submit(MODEL, "!sleep:200")
    until(lambda: fleet.pending(MODEL) == 1, "the device is busy")
    ids = fleet.submit_all(
        MODEL, [{"text": f"!segv@{stage}" if at == 3 else f"good {at}"} for at in range(8)]
    )
    replies = fleet.replies(MODEL, ids)
    culprit = replies.pop(3)
    check_all_ok([*replies, fleet.reply(MODEL, blocker)])
    assert culprit.error["name"] == "poison"
    assert culprit.error["source"] == "model"
    assert culprit.receipt["attempt"] == 2
    check_nothing_left(fleet)
    assert worker.is_running()
    assert fleet.ask(MODEL).status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["preprocess", "predict", "postprocess"])
def test_only_the_culprit_of_a_hang_fails(fleet, stage):
    draft = draft_of(
        "echo", MODEL, limits=limits(preprocess_ms=400, predict_ms=400, postprocess_ms=400)
    )
    (worker,) = fleet.bring_up(draft)
    ids = fleet.submit_all(
        MODEL, [{"text": f"!hang@{stage}" if at == 3 else f"good {at}"} for at in range(8)]
    )
    replies = fleet.replies(MODEL, ids)
    culprit = replies.pop(3)
    check_all_ok(replies)
    assert culprit.error["name"] == "time_limit"
    assert culprit.error["source"] == "model"
    check_nothing_left(fleet)
    assert worker.is_running()


@pytest.mark.slow
def test_a_model_that_holds_the_interpreter_stops_neither_beat_nor_intake(fleet):
    (worker,) = fleet.bring_up(draft_of("echo", MODEL), lease_ms=600, beat_ms=200)
    ids = fleet.submit_all(MODEL, [{"text": "!hold_gil:2500"}, {}, {}])
    wait_for_beats(fleet, worker, 4)
    assert not fleet.items(MODEL, ids[0])
    check_all_ok(fleet.replies(MODEL, ids))


def test_a_model_that_runs_out_of_memory_fails_alone(fleet):
    fleet.bring_up(draft_of("echo", MODEL))
    ids = fleet.submit_all(MODEL, [{}, {"text": "!memory_error"}, {}])
    first, second, third = fleet.replies(MODEL, ids)
    check_all_ok([first, third])
    assert second.error["name"] == "device_memory"
    assert second.error["retryable"]


@pytest.mark.slow
def test_a_device_process_that_dies_again_and_again_keeps_answering(fleet):
    (worker,) = fleet.bring_up(draft_of("echo", MODEL))
    for _ in range(2):
        assert fleet.ask(MODEL, "!segv").error["name"] == "poison"
    assert fleet.ask(MODEL).status == "ok"
    assert len(worker.events("device.lost")) == 4


@pytest.mark.slow
def test_loading_a_second_model_is_no_time_limit_of_the_first(fleet):
    """A version that takes long to warm up holds up a batch, and is not that batch's fault."""
    (worker,) = fleet.bring_up(
        draft_of("echo", MODEL, limits=limits(preprocess_ms=300, predict_ms=300))
    )
    slow = draft_of("device_stub", "slow", parameters={"base_ms": 150.0})
    fleet.deploy(slow)
    ids = []

    def second_is_ready():
        ids.append(fleet.submit(MODEL))
        check_all_ok([fleet.reply(MODEL, ids[-1])])
        return any(
            lanes["1"]["state"] == "ready" for lanes in fleet.lanes("slow").values() if lanes
        )

    until(second_is_ready, "the slow model is loaded")
    assert not worker.events("device.lost")


def test_a_worker_that_was_frozen_announces_itself_again(fleet):
    """Its hash expires meanwhile; without it routers would count its versions as unserved."""
    (worker,) = fleet.bring_up(draft_of("echo", MODEL), lease_ms=300, beat_ms=100)
    name = fleet.keys(MODEL).worker(worker.facts["worker"])
    worker.signal(signal.SIGSTOP)
    until(lambda: not fleet.server.exists(name), "the announcement has expired")
    worker.signal(signal.SIGCONT)
    until(lambda: fleet.server.hget(name, "lanes"), "it announces its versions again", 3)
    assert fleet.ask(MODEL).status == "ok"


def test_entries_whose_take_was_never_answered_are_found_again(fleet):
    """The connection breaks after the server handed entries over: they are pending, unknown."""
    (worker,) = fleet.bring_up(draft_of("echo", MODEL))
    worker.signal(signal.SIGSTOP)
    request = fleet.submit(MODEL, timeout_ms="6000")
    # The take that waits behind the bell goes through; its answer reaches a frozen process.
    until(lambda: fleet.pending(MODEL) == 1, "the request is handed out")
    for connection in fleet.server.client_list():
        if connection["name"].startswith(worker.facts["worker"]):
            fleet.server.client_kill_filter(_id=connection["id"])
    worker.signal(signal.SIGCONT)
    assert fleet.reply(MODEL, request).status == "ok"
