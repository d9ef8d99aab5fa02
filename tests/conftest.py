"""Fixtures of all tests: a private server, a namespace for each test, and a clean environment."""

import os
import secrets
from pathlib import Path

import hypothesis
import pytest
from support.server import KINDS, delete_namespace, program_of, running_server

# A shared machine makes any example slow now and then; what hangs is ended by faulthandler.
hypothesis.settings.register_profile("batchfleet", deadline=None)
hypothesis.settings.load_profile("batchfleet")

# Taken before any test runs: `clean_environment` hides the variables from the tests themselves.
_ENVIRONMENT = dict(os.environ)


@pytest.fixture(scope="session")
def redis_server():
    """A server for the whole session (`support.server.ServerAddress`), on socket and port."""
    with running_server(_ENVIRONMENT) as server:
        yield server


@pytest.fixture(scope="session")
def server_program():
    """The program of a server that a test starts for itself."""
    return program_of(_ENVIRONMENT.get("BATCHFLEET_TEST_SERVER", KINDS[0]))


@pytest.fixture
def redis_url(redis_server):
    """Where the session's server is reached; use it together with `namespace`."""
    return redis_server.url


@pytest.fixture
def namespace(redis_server):
    """A namespace of this test alone; its keys are gone afterwards."""
    name = f"t{secrets.token_hex(6)}"
    yield name
    delete_namespace(redis_server.socket_url, name)


@pytest.fixture
def store_path(tmp_path: Path):
    """An empty folder for a model store."""
    path = tmp_path / "store"
    path.mkdir()
    return path


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No setting of the person who runs the tests reaches a test or a process that it starts."""
    for name in list(os.environ):
        if name.startswith("BATCHFLEET_") and not name.startswith("BATCHFLEET_TEST_"):
            monkeypatch.delenv(name)
