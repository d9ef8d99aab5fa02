"""A version that is deployed again, as another, while a worker holds requests of it."""

import shutil
from dataclasses import replace
from pathlib import Path

from support.fleet import check_all_ok, draft_of, limits, until

MODEL = "m"
FAST = {"lease_ms": 900, "beat_ms": 300, "recover_ms": 300, "refresh_ms": 300}
IN_TIME_S = 20


def draft(**parameters):
    return draft_of("echo", MODEL, limits=limits(max_batch_size=4), parameters=parameters)


def holding(fleet):
    """A fleet of one worker that holds requests; returns the worker and their ids."""
    fleet.deploy(draft())
    fleet.router(no_worker_ms=60_000)
    worker = fleet.consumer(**FAST)
    fleet.wait_until_served(MODEL)
    ids = fleet.submit_all(MODEL, [{"text": "!sleep:1000"}] * 6)
    until(lambda: fleet.pending(MODEL) >= 5, "the worker holds more than a batch")
    return worker, ids


def test_what_the_worker_held_of_it_runs_on_the_version_deployed_again(fleet):
    worker, ids = holding(fleet)
    names = fleet.living(MODEL)
    shutil.rmtree(Path(fleet.store.root) / MODEL / "1")
    fleet.deploy(draft(salt=1))
    replies = [fleet.reply(MODEL, one, IN_TIME_S) for one in ids]
    check_all_ok(replies)
    assert len(worker.events("lane.ready")) == 2
    assert replies[-1].receipt["lineage"] == fleet.store.manifest(MODEL, "1").lineage
    assert fleet.living(MODEL) == names, "nothing else is loaded again for it"
    assert all(len(fleet.items(MODEL, one)) == 1 for one in ids)
    until(lambda: fleet.pending(MODEL) == 0, "nothing stays behind")


def test_what_it_cannot_load_any_more_goes_to_whoever_can(fleet):
    """The worker starts over, since an entry changes hands only where its owner leaves."""
    worker, ids = holding(fleet)
    names = fleet.living(MODEL)
    record = fleet.store.manifest(MODEL, "1").record()
    fleet.deploy_record(MODEL, replace(record, lineage="of another kind"))
    until(lambda: worker.events("lane.stranded"), "the worker lets go")
    until(lambda: fleet.living(MODEL) and not fleet.living(MODEL) & names, "it is back as another")
    fleet.deploy_record(MODEL, record)
    check_all_ok([fleet.reply(MODEL, one, IN_TIME_S) for one in ids])
    assert all(len(fleet.items(MODEL, one)) == 1 for one in ids)
