"""Folders for temporary files as machines have them: odd names, long paths, no room, no right."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
import redis
from support.server import KINDS, program_or_skip

from batchfleet.broker.blocking import BlockingExecutor
from batchfleet.broker.embedded import EmbeddedServer, ServerOptions, is_socket_path
from batchfleet.broker.fleet import ping
from batchfleet.service.settings_sources import load_settings
from batchfleet.wire.errors import ServerError, SettingsError

ODD = [
    "a b", "a%20b", "a?b", "a#b", "a&db=3", "a'b", 'a"b', "a\\b", "\u00e4\u65e5", "x" * 120,
    "a::b", "~", "$HOME", "a\tb", "[a]*",
]  # fmt: skip


@pytest.fixture
def program():
    return program_or_skip(KINDS[0])


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """Make a folder the one for temporary files, as a process finds it that starts there."""

    def use(name):
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        monkeypatch.setenv("TMPDIR", str(path))
        monkeypatch.setattr(tempfile, "tempdir", None)
        return path

    return use


@pytest.mark.parametrize("name", ODD)
def test_a_server_lives_under_any_name(temporary, program, name):
    folder = temporary(name)
    server = EmbeddedServer(ServerOptions(program=program))
    server.start()
    try:
        assert server.folder.parent == folder
        settings, _ = load_settings({"redis_url": server.socket_url}, {})
        with BlockingExecutor(settings.redis_url, "t") as executor:
            executor.run(ping())
        with redis.Redis.from_url(server.socket_url, socket_timeout=5, retry=None) as connection:
            assert connection.config_get("dir")["dir"] == str(server.folder)
            assert Path(connection.config_get("unixsocket")["unixsocket"]).exists()
    finally:
        server.stop()
    assert list(folder.iterdir()) == []


def test_a_socket_too_far_down_lies_in_a_short_folder_that_goes_with_the_server(temporary, program):
    temporary("x" * 120)
    server = EmbeddedServer(ServerOptions(program=program))
    server.start()
    path = Path(server.socket_url.removeprefix("unix://"))
    assert path.is_socket()
    assert path.parent.stat().st_mode & 0o077 == 0
    assert server.folder not in path.parents
    server.stop()
    assert not path.parent.exists()


def test_so_does_one_whose_folder_is_named(tmp_path, program):
    folder = tmp_path / ("y" * 120)
    folder.mkdir()
    server = EmbeddedServer(ServerOptions(program=program, folder=folder))
    server.start()
    try:
        assert (folder / "server.log").exists()
        with BlockingExecutor(server.socket_url, "t") as executor:
            executor.run(ping())
    finally:
        server.stop()
    assert folder.is_dir()


def test_where_a_socket_can_lie():
    assert is_socket_path(Path("/tmp/x/server.sock"))
    assert is_socket_path(Path("/" + "x" * 102))
    assert not is_socket_path(Path("/" + "x" * 103))
    assert not is_socket_path(Path("/" + "\u65e5" * 40))
    assert not is_socket_path(Path(os.fsdecode(b"/\xff")))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_no_room_or_no_right_is_one_sentence(monkeypatch, program, error):
    def refuse(*_, **__):
        raise OSError(error, os.strerror(error), "/some/folder")

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    server = EmbeddedServer(ServerOptions(program=program))
    with pytest.raises(ServerError, match=f"/some/folder: {os.strerror(error)}"):
        server.start()
    server.stop()


def test_no_temporary_folder_at_all_is_one_sentence(monkeypatch, program):
    def none():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/x']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", none)
    with pytest.raises(ServerError, match="No usable temporary directory"):
        EmbeddedServer(ServerOptions(program=program)).start()


def test_a_program_that_cannot_be_run_is_one_sentence(tmp_path):
    program = tmp_path / "server"
    program.write_text("no program")
    with pytest.raises(ServerError, match="cannot start a server"):
        EmbeddedServer(ServerOptions(program=str(program))).start()


def test_a_blank_in_a_url_is_said_to_be_written_otherwise():
    with pytest.raises(SettingsError, match="%20 for a space"):
        load_settings({"redis_url": "unix:///a b/server.sock"}, {})
