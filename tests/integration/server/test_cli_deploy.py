"""`deploy`, `undeploy`, `models remove` and `deploy restore`, as users run them without workers."""

import json
from dataclasses import replace

import pytest
import redis
from support.fleet import draft_of

from batchfleet.broker import fleet
from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.models.store import Store
from batchfleet.wire.keys import ModelKeys


@pytest.fixture
def executor(redis_server):
    with BlockingExecutor(redis_server.socket_url, "test") as executor:
        yield executor


@pytest.fixture
def keys(namespace):
    return ModelKeys(namespace, "m")


@pytest.fixture
def store(store_path):
    """Three versions of a model."""
    found = Store(str(store_path))
    for version in ("1", "2", "3"):
        found.publish(draft_of("echo", "m", version=version), {})
    return found


@pytest.fixture
def client(redis_server):
    with redis.Redis.from_url(redis_server.socket_url, socket_timeout=5, retry=None) as client:
        yield client


def record(executor, keys):
    return executor.run(fleet.deployment(keys))


def test_without_a_worker_a_version_takes_over_at_once_and_the_one_before_is_kept(
    cli, store, executor, keys
):
    cli("deploy", "m/1")
    told = cli("deploy", "m/2", "--json")
    shown = json.loads(told.stdout)
    assert (shown["version"], shown["withdrawn"]) == ("2", ["1"])
    assert "no worker serves m: it took over at once" in told.stderr
    found = record(executor, keys)
    assert (found.stable, set(found.versions), set(found.kept)) == ("2", {"2"}, {"1"})
    assert "1 (kept)" in cli("status").stdout
    assert json.loads(cli("status", "--json").stdout)["models"][0]["kept"] == ["1"]


def test_requests_of_the_version_before_are_reported_and_it_stays(cli, store, client, keys):
    cli("deploy", "m/1")
    client.xadd(keys.queue("1", "normal", 0), {"id": "x"})
    told = cli("deploy", "m/2", exit_code=1)
    assert "m/2 is in service" in told.stdout
    assert "m/1 has 1" in told.stderr
    assert "undeploy m/VERSION" in told.stderr
    told = cli("undeploy", "m/1", "--drain", "0", exit_code=1)
    assert "m/1 has 1" in told.stderr
    shown = json.loads(cli("undeploy", "m/1", "--force", "--json").stdout)
    assert (shown["model"], shown["version"], shown["forgotten_requests"]) == ("m", "1", 1)
    assert "unknown_version" in cli("undeploy", "m/1", exit_code=1).stderr


def test_a_version_that_takes_requests_is_not_undeployed(cli, store, executor, keys):
    cli("deploy", "m/1")
    assert "m/1 takes requests" in cli("undeploy", "m/1", exit_code=1).stderr
    assert "unknown_version" in cli("undeploy", "m/9", exit_code=1).stderr
    assert "unknown_model" in cli("undeploy", "other/1", exit_code=1).stderr
    assert record(executor, keys).stable == "1"


def test_what_is_kept_may_be_forgotten(cli, store, executor, keys):
    for version in ("1", "2", "3"):
        cli("deploy", f"m/{version}")
    assert set(record(executor, keys).kept) == {"1", "2"}
    cli("undeploy", "m/1")
    assert set(record(executor, keys).kept) == {"2"}
    cli("deploy", "m/1", "--keep", "0")
    assert not record(executor, keys).kept


def test_now_leaves_the_versions_before_in_service(cli, store, executor, keys):
    cli("deploy", "m/1")
    cli("deploy", "m/2", "--now")
    found = record(executor, keys)
    assert (found.stable, set(found.versions), found.kept) == ("2", {"1", "2"}, {})


# Removing versions.


def test_a_version_is_removed_once_no_fleet_has_it_in_service(cli, store, executor, keys):
    cli("deploy", "m/1")
    assert "m/1 is in service in the fleet" in cli("models", "remove", "m/1", exit_code=1).stderr
    cli("deploy", "m/2")
    cli("models", "remove", "m/1")
    assert store.versions("m") == ["2", "3"]
    assert not record(executor, keys).kept
    assert "has no version m/1" in cli("models", "remove", "m/1", exit_code=1).stderr
    assert "MODEL/VERSION" in cli("models", "remove", "m", exit_code=2).stderr


def test_without_a_server_the_copy_of_the_record_says_what_is_in_service(cli, store):
    cli("deploy", "m/1")
    nowhere = {"BATCHFLEET_REDIS_URL": ""}
    told = cli("models", "remove", "m/1", exit_code=1, env=nowhere)
    assert "m/1 is in service in the fleet" in told.stderr
    cli("models", "remove", "m/2", env=nowhere)
    assert store.versions("m") == ["1", "3"]


def test_another_fleet_of_the_same_store_counts_as_well(cli, store, store_path):
    cli("deploy", "m/1")
    told = cli("models", "remove", "m/1", "--namespace", "other", exit_code=1)
    assert "m/1 is in service in the fleet" in told.stderr


def test_a_link_is_removed_and_not_what_it_leads_to(cli, store, store_path, tmp_path):
    (store_path / "m" / "4").symlink_to(store_path / "m" / "3")
    manifest = json.loads((store_path / "m" / "3" / "manifest.json").read_text())
    assert manifest["version"] == "3"
    cli("models", "remove", "m/4")
    assert store.versions("m") == ["1", "2", "3"]
    assert sorted(path.name for path in (store_path / "m").iterdir()) == ["1", "2", "3"]


# Restoring.


def content(executor, keys):
    """What a deploy record says, and for whom it is deployed."""
    found = record(executor, keys)
    return replace(found, epoch=0, nonce=""), executor.run(fleet.tenants(keys))


def test_what_a_server_has_lost_comes_back_from_the_store(cli, store, client, executor, keys):
    cli("deploy", "m/1", "--tenant", "acme")
    cli("deploy", "m/2")
    cli("deploy", "set", "m", "backlog=7", "buckets=8,16")
    before = content(executor, keys)
    queues = sorted(client.scan_iter(f"{keys.prefix}q:2:*".replace("{", "\\{")))
    lost = list(client.scan_iter(f"{keys.namespace}:*"))
    client.delete(*lost)
    shown = json.loads(cli("deploy", "restore", "--json").stdout)
    assert [(one["model"], one["state"]) for one in shown["models"]] == [("m", "lost")]
    assert shown["restored"] == []
    told = cli("deploy", "restore", "--yes").stdout
    assert "m: the server has lost it" in told
    assert "set:backlog: 7" in told
    assert "m is restored" in told
    assert content(executor, keys) == before
    assert executor.run(fleet.models(keys.namespace)) == ["m"]
    assert sorted(client.scan_iter(f"{keys.prefix}q:2:*".replace("{", "\\{"))) == queues
    assert "nothing is lost" in cli("deploy", "restore", "--yes").stdout


def test_the_last_changes_come_back_as_well(cli, store, client, executor, keys):
    cli("deploy", "m/1")
    early = client.hgetall(keys.deploy)
    cli("deploy", "m/2", "--tenant", "acme")
    cli("deploy", "set", "m", "backlog=7")
    before = content(executor, keys)
    client.delete(keys.deploy, keys.tenants)
    client.hset(keys.deploy, mapping=early)
    client.sadd(keys.tenants, "default")
    shown = json.loads(cli("deploy", "restore", "--json", "--yes").stdout)
    assert (shown["models"][0]["state"], shown["restored"]) == ("behind", ["m"])
    assert content(executor, keys) == before


def test_what_was_changed_since_stays_and_a_paused_roll_comes_back(
    cli, store, client, executor, keys, store_path
):
    cli("deploy", "m/1")
    copy = store_path / "m" / "deploy.json"
    plain = json.loads(copy.read_text()) | {"roll": {"phase": "shifting", "to": "2"}}
    copy.write_text(json.dumps(plain))
    client.hset(keys.deploy, "set:backlog", "9")
    client.hset(keys.deploy, "epoch", "5")
    told = cli("deploy", "restore", "--yes").stdout
    assert "changed since the copy was written; it is left as it is" in told
    assert "nothing is lost" in told
    client.delete(*client.scan_iter(f"{keys.namespace}:*"))
    cli("deploy", "restore", "m", "--yes")
    assert json.loads(record(executor, keys).roll)["phase"] == "paused"


def test_nobody_is_asked_where_nobody_can_answer(cli, store, client, executor, keys):
    cli("deploy", "m/1")
    client.delete(*client.scan_iter(f"{keys.namespace}:*"))
    assert "--yes restores without asking" in cli("deploy", "restore", exit_code=1).stderr
    assert record(executor, keys) is None


def test_what_was_undeployed_is_not_brought_back(cli, store, client, executor, keys, store_path):
    cli("deploy", "m/1")
    raw = (store_path / "m" / "deploy.json").read_bytes()
    cli("undeploy", "m")
    (store_path / "m" / "deploy.json").write_bytes(raw)
    told = cli("deploy", "restore", "--yes")
    assert "m was undeployed within the last hour" in told.stderr
    assert record(executor, keys) is None


@pytest.mark.parametrize("raw", [b"nonsense", b"[]", b"{}", b'{"namespace": "x", "tenants": []}'])
def test_a_copy_that_is_none_is_named(cli, store, store_path, raw):
    (store_path / "m" / "deploy.json").write_bytes(raw)
    assert "store: m/deploy.json is left out:" in cli("deploy", "restore").stderr


def test_a_copy_of_another_fleet_is_named(cli, store, store_path):
    cli("deploy", "m/1")
    told = cli("deploy", "restore", "--namespace", "other")
    assert "it is of the fleet" in told.stderr
