"""Secrets that lie in files: private ones alone are read."""

import os

import pytest

from batchfleet.ops.children import environment_of
from batchfleet.service.settings import SETTING_ROWS, Settings
from batchfleet.service.settings_sources import load_settings
from batchfleet.wire.errors import SettingsError

URL = "redis://:hunter2@host/0"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "url"
    path.write_text(f"{URL}\n")
    path.chmod(0o600)
    return path


def faults_of(environ, config=None):
    with pytest.raises(SettingsError) as caught:
        load_settings({}, environ, config)
    assert "hunter2" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_file_holds_the_value(file, mode):
    """X9: by its variable."""
    file.chmod(mode)
    settings, origins = load_settings({}, {"BATCHFLEET_REDIS_URL_FILE": str(file)})
    assert settings.redis_url == URL
    assert origins["redis_url"] == "environment BATCHFLEET_REDIS_URL_FILE"


def test_a_line_of_the_settings_file_names_it_too(file, tmp_path):
    """X9: one rule for all ways in; a flag wins."""
    config = tmp_path / "fleet.toml"
    config.write_text(f'redis_url_file = "{file}"\n')
    assert load_settings({}, {}, config)[0].redis_url == URL
    assert load_settings({"redis_url": "redis://x"}, {}, config)[0].redis_url == "redis://x"


def test_each_secret_has_one(tmp_path):
    """X9: not the server's URL alone."""
    secrets = {row.name: row.file_name for row in SETTING_ROWS.values() if row.secret}
    assert secrets == {
        "redis_url": "redis_url_file",
        "jobs_redis_url": "jobs_redis_url_file",
        "store": "store_file",
        "shared_store": "shared_store_file",
    }
    path = tmp_path / "store"
    path.write_text("ftp://u:hunter2@h/x")
    path.chmod(0o600)
    settings, _ = load_settings({}, {"BATCHFLEET_STORE_FILE": str(path)})
    assert settings.store == "ftp://u:hunter2@h/x"
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o666, 0o610])
def test_what_others_may_read_is_no_secret(file, mode):
    """X9: refused with mode and remedy."""
    file.chmod(mode)
    told = faults_of({"BATCHFLEET_REDIS_URL_FILE": str(file)})
    assert "chmod" in told
    assert f"{mode:04o}" in told


def make_fifo(path):
    path.unlink()
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.unlink(),
        make_fifo,
        lambda path: (path.unlink(), path.mkdir(0o700)),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text("x" * 100_000),
    ],
    ids=["missing", "fifo", "folder", "no text", "large"],
)
def test_what_is_no_file_with_a_secret_is_one_sentence(file, spoil):
    """X9, X10: nothing is waited for."""
    spoil(file)
    assert len(faults_of({"BATCHFLEET_REDIS_URL_FILE": str(file)}).splitlines()) == 2


@pytest.mark.parametrize("value", ["hunter2", "hunter2@host", "redis:hunter2", ":hunter2"])
def test_a_password_alone_is_not_shown_in_the_complaint(file, value):
    """X9: it is easily taken for what the file should hold."""
    file.write_text(value)
    in_file = faults_of({"BATCHFLEET_REDIS_URL_FILE": str(file)})
    in_variable = faults_of({"BATCHFLEET_REDIS_URL": value})
    assert "redis_url must start with redis://" in in_file
    assert "redis_url must start with redis://" in in_variable


def test_value_and_file_are_one_or_the_other(file, tmp_path):
    """X9: in one place; a variable beats a file of settings, as ever."""
    environ = {"BATCHFLEET_REDIS_URL_FILE": str(file), "BATCHFLEET_REDIS_URL": "redis://x"}
    assert "set only one of them" in faults_of(environ)
    config = tmp_path / "fleet.toml"
    config.write_text('redis_url = "redis://y"\n')
    assert load_settings({}, {"BATCHFLEET_REDIS_URL_FILE": str(file)}, config)[0].redis_url == URL


def test_a_settings_file_with_a_password_is_private_as_well(tmp_path):
    """X9: `batchfleet.toml`."""
    config = tmp_path / "batchfleet.toml"
    config.write_text(f'redis_url = "{URL}"\n')
    config.chmod(0o644)
    assert "chmod 600" in faults_of({})
    config.chmod(0o600)
    assert load_settings({}, {})[0].redis_url == URL
    config.write_text('redis_url = "redis://host"\n')
    config.chmod(0o644)
    assert load_settings({}, {})[0].redis_url == "redis://host"


def test_a_child_gets_the_value_and_no_file_beside_it(file):
    """X9: which would be two."""
    environ = environment_of(Settings(redis_url=URL), {"BATCHFLEET_REDIS_URL_FILE": str(file)})
    assert load_settings({}, environ)[0].redis_url == URL


def test_there_is_no_file_for_what_is_no_secret():
    assert "there is no setting 'BATCHFLEET_TENANT_FILE'" in faults_of(
        {"BATCHFLEET_TENANT_FILE": "x"}
    )
