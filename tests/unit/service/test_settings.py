import os
from dataclasses import FrozenInstanceError

import pytest

from batchfleet.service.addresses import masked_url
from batchfleet.service.settings import SETTING_ROWS, Settings
from batchfleet.service.settings_sources import load_settings, located
from batchfleet.wire.errors import SettingsError


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def faults_of(flags=None, environ=None, config_path=None):
    with pytest.raises(SettingsError) as caught:
        load_settings(flags or {}, environ or {}, config_path)
    return str(caught.value).splitlines()[1:]


def test_defaults_hold_where_nobody_says_anything():
    settings, origins = load_settings({}, {"PATH": "/bin"}, None)
    assert settings == located(Settings())
    assert origins == dict.fromkeys(SETTING_ROWS, "default")
    assert (settings.lease_ms, settings.beat_ms, settings.namespace) == (3000, 1000, "bf")


def test_defaults_obey_their_own_rules():
    assert {name: row.fault(row.default) for name, row in SETTING_ROWS.items()} == dict.fromkeys(
        SETTING_ROWS, ""
    )


def test_flag_beats_variable_beats_file_beats_default(tmp_path):
    config = tmp_path / "fleet.toml"
    config.write_text('namespace = "file"\ntenant = "file"\nlease_ms = 5000\n')
    environ = {"BATCHFLEET_TENANT": "variable", "BATCHFLEET_LEASE_MS": "6000"}
    settings, origins = load_settings({"lease_ms": 7000, "store": None}, environ, config)
    assert (settings.namespace, settings.tenant, settings.lease_ms) == ("file", "variable", 7000)
    assert {name: origins[name] for name in ("namespace", "tenant", "lease_ms", "store")} == {
        "namespace": f"file {config}",
        "tenant": "environment BATCHFLEET_TENANT",
        "lease_ms": "flag --lease-ms",
        "store": "default",
    }


def test_text_from_flags_and_variables_becomes_a_number():
    settings, _ = load_settings({"workers": "3"}, {"BATCHFLEET_THREADS": "2"}, None)
    assert (settings.workers, settings.threads) == (3, 2)


def test_config_file_is_found_by_variable_and_in_the_working_folder(tmp_path):
    (tmp_path / "batchfleet.toml").write_text('namespace = "here"\n')
    (tmp_path / "other.toml").write_text('namespace = "there"\n')
    assert load_settings({}, {})[0].namespace == "here"
    assert load_settings({}, {"BATCHFLEET_CONFIG": "other.toml"})[0].namespace == "there"


def test_every_fault_is_listed_at_once(tmp_path):
    config = tmp_path / "fleet.toml"
    config.write_text('leese_ms = 1\nthreads = "2"\n[router]\n')
    faults = faults_of(
        {"workerz": 1, "log_level": "loud"},
        {"BATCHFLEET_NAMESPAC": "x", "BATCHFLEET_TENANT": "a:b", "BATCHFLEET_BEAT_MS": "1s"},
        config,
    )
    text = "\n".join(faults)
    for part in (
        "'leese_ms'; did you mean lease_ms?",
        "'router'",
        "threads is '2'; it must be a whole number",
        "'workerz'; did you mean workers?",
        "flag --log-level: log_level is 'loud'; it must be one of debug",
        "'BATCHFLEET_NAMESPAC'; did you mean BATCHFLEET_NAMESPACE?",
        "environment BATCHFLEET_TENANT: tenant is 'a:b'; it is not a name",
        "environment BATCHFLEET_BEAT_MS: beat_ms is '1s'; it must be a whole number",
    ):
        assert part in text
    assert len(faults) == 8


def test_contradiction_is_listed_beside_other_faults():
    faults = faults_of({"beat_ms": 1501, "workers": -1})
    assert len(faults) == 2
    assert "at least 2 × beat_ms" in faults[1]
    assert load_settings({"beat_ms": 1500}, {})[0].beat_ms == 1500


@pytest.mark.parametrize("content", ["namespace = ", "\udcff"])
def test_unreadable_config_file_is_a_fault(tmp_path, content):
    config = tmp_path / "fleet.toml"
    config.write_bytes(content.encode(errors="surrogateescape"))
    assert len(faults_of(config_path=config)) == 1
    assert len(faults_of(config_path=tmp_path / "missing.toml")) == 1


def test_variables_of_tests_and_tools_are_no_settings():
    environ = {
        "BATCHFLEET_CONFIG": "",
        "BATCHFLEET_TEST_SERVER": "redis7",
        "BATCHFLEET_DEVICE_PROCESS": "a mark that programs of a model inherit",
        "BATCHFLEET_REDIS_SERVER": "/bin/redis-server",
    }
    assert load_settings({}, environ)[0] == located(Settings())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("redis_url", "http://host"),
        ("redis_url", "redis://"),
        ("redis_url", "unix://"),
        ("namespace", "{bf}"),
        ("store", ""),
        ("models", "a,,b"),
        ("models", "a b"),
        ("device", "gpu"),
        ("device", "cuda"),
        ("threads", 0),
        ("threads", True),
        ("lease_ms", 3000.0),
        ("grace_ms", 10**9),
        ("workers", "9" * 5000),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    assert len(faults_of({name: value})) == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("redis_url", "redis://:pw@host:6379/0"),
        ("redis_url", "rediss://host"),
        ("redis_url", "unix:///run/redis.sock"),
        ("redis_url", "unix://user:pw@/run/redis.sock?db=1"),
        ("models", "minilm, ocr-*,b?"),
        ("device", "cpu:0-1"),
        ("device", "cuda:3"),
        ("store", "s3://bucket/models"),
        ("workers", 0),
    ],
)
def test_values_in_range_are_taken(name, value):
    assert getattr(load_settings({name: value}, {})[0], name) == value


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user:pw@host/0", "redis://user:***@host/0"),
        ("rediss://:p@w/x@host/0", "rediss://:***@host/0"),
        ("unix:///run/redis.sock?db=0&password=pw", "unix:///run/redis.sock?db=0&password=***"),
        ("unix:///run/a:b@c.sock", "unix:///run/a:b@c.sock"),
    ],
)
def test_passwords_are_masked(url, masked):
    assert masked_url(url) == masked


def test_passwords_show_neither_in_faults_nor_in_repr():
    fault = faults_of({"redis_url": "amqp://user:secret@host"})[0]
    assert "secret" not in fault
    assert "user:***@host" in fault
    settings, _ = load_settings({"redis_url": "redis://user:secret@host"}, {})
    assert "secret" not in repr(settings)
    assert SETTING_ROWS["redis_url"].shown(settings.redis_url) == "redis://user:***@host"


def test_a_server_must_be_named():
    with pytest.raises(SettingsError, match="BATCHFLEET_REDIS_URL"):
        Settings().require_redis_url()
    assert Settings(redis_url="redis://host").require_redis_url() == "redis://host"


def test_settings_are_frozen():
    with pytest.raises(FrozenInstanceError):
        Settings().workers = 2


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("./store", "{here}/store"),
        ("../store/", "{above}/store"),
        ("/mnt/models", "/mnt/models"),
        ("~/models", "{home}/models"),
        ("file://store", "file://{here}/store"),
        ("file:///mnt/models", "file:///mnt/models"),
        ("local://store", "local://{here}/store"),
        ("s3://bucket/store", "s3://bucket/store"),
        ("simplecache::s3://bucket", "simplecache::s3://bucket"),
    ],
)
def test_paths_are_made_absolute_once(given, kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/users/me")
    settings = load_settings({"store": given, "cache": "copies"}, {}, None)[0]
    assert settings.store == kept.format(here=tmp_path, above=tmp_path.parent, home="/users/me")
    assert settings.cache == str(tmp_path / "copies")
    assert located(settings) == settings


@pytest.mark.parametrize("store", ["models\udcff", "mod\x1b[2Jels", "a\x00b"])
def test_text_that_no_codec_and_no_terminal_takes_is_refused(store):
    with pytest.raises(SettingsError, match="must be text in UTF-8"):
        load_settings({"store": store}, {}, None)


@pytest.mark.parametrize(
    "line",
    ["lease_ms = nan", "lease_ms = inf", "lease_ms = 1e400", "lease_ms = true", "lease_ms = 3.0",
     "lease_ms = -1", 'lease_ms = "3_000"', "lease_ms = 2020-01-01", "lease_ms = [3000]",
     f"lease_ms = {'9' * 400}", f"lease_ms = 0x{'f' * 5000}", f"lease_ms = {'9' * 5000}",
     f"lease_ms = {'[' * 5000}{']' * 5000}", "namespace = nan"],
    ids=lambda line: line[:20],
)  # fmt: skip
def test_numbers_in_a_file_have_their_range(tmp_path, line):
    config = tmp_path / "fleet.toml"
    config.write_text(line)
    (fault,) = faults_of(config_path=config)
    assert str(config) in fault
    assert len(fault) < 500


@pytest.mark.parametrize("text", ["nan", "inf", "1e400", "3_000", "٣٠٠٠", " 3000", "", "9" * 5000])
def test_numbers_in_a_variable_have_their_range(text):
    (fault,) = faults_of(environ={"BATCHFLEET_LEASE_MS": text})
    assert "must be a whole number from 1 to 86400000" in fault


@pytest.mark.parametrize(
    "url", ["redis://h:99999", "redis://h:0", "redis://h:x", "redis://h/x", "redis://[::1"]
)
def test_a_url_has_a_port_and_a_database_by_number(url):
    (fault,) = faults_of(environ={"BATCHFLEET_REDIS_URL": url})
    assert "must" in fault


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The settings file that a program finds in its working folder."""
    folder = tmp_path / "work"
    folder.mkdir(mode=0o755)
    monkeypatch.chdir(folder)
    path = folder / "batchfleet.toml"
    path.write_text("threads = 2\n")
    path.chmod(0o644)
    return path


def by_default():
    return load_settings({}, {})


def test_a_file_that_others_may_write_is_not_read(config):
    assert by_default()[0].threads == 2
    config.chmod(0o666)
    with pytest.raises(SettingsError, match=r"is not read: every user can .*mode 0666; chmod o-w"):
        by_default()
    with pytest.raises(SettingsError, match="mode 0666"):
        load_settings({}, {"BATCHFLEET_CONFIG": str(config)})
    with pytest.raises(SettingsError, match="mode 0666"):
        load_settings({}, {}, config)
    config.chmod(0o644)
    config.parent.chmod(0o777)
    with pytest.raises(SettingsError, match="mode 0777"):
        by_default()


@pytest.mark.parametrize(("make", "fault"), [
    (os.mkfifo, "not a regular file"),
    (lambda path: path.mkdir(), "not a regular file"),
    (lambda path: path.symlink_to("nowhere"), "cannot be inspected"),
])  # fmt: skip
def test_what_is_no_file_in_its_place_is_told_and_not_waited_for(config, make, fault):
    config.unlink()
    make(config)
    with pytest.raises(SettingsError, match=fault):
        by_default()


def test_a_link_to_ones_own_file_is_read(config, tmp_path):
    config.rename(tmp_path / "elsewhere.toml")
    config.symlink_to(tmp_path / "elsewhere.toml")
    assert by_default()[0].threads == 2


@pytest.mark.parametrize(("shared", "store", "is_shared"), [
    ("", "./store", False), ("./store", "./store", True), ("./store/", "store", True),
    ("store", "./other", False), ("", "", False), (".", "./store", False),
])  # fmt: skip
def test_a_store_is_shared_where_it_is_named_and_no_other(shared, store, is_shared):
    assert Settings(shared_store=shared, store=store).shares_store is is_shared
