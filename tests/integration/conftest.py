"""The command line in this process, clients with a fleet of one thread, fleets of processes."""

import logging
import secrets
import warnings

import pytest
import redis
import structlog
from click.testing import CliRunner
from support.fleet import running_fleet
from support.stub_fleet import StubFleet, deploy_model

from batchfleet.ops.cli import main
from batchfleet.producer.async_client import AsyncClient


@pytest.fixture
def restored_logs():
    """Commands configure the logs of their process, which here is pytest's."""
    root = logging.getLogger()
    handlers, level, show = root.handlers[:], root.level, warnings.showwarning
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:], warnings.showwarning = handlers, show
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def cli(redis_server, namespace, store_path, restored_logs, monkeypatch, tmp_path):
    """Run a command on the test's server, namespace and store."""
    monkeypatch.chdir(tmp_path)
    environ = {
        "BATCHFLEET_REDIS_URL": redis_server.socket_url,
        "BATCHFLEET_NAMESPACE": namespace,
        "BATCHFLEET_STORE": str(store_path),
    }

    def run(*arguments, exit_code=0, **options):
        result = CliRunner(env=environ).invoke(main, arguments, **options)
        assert result.exit_code == exit_code, result.output
        return result

    return run


@pytest.fixture
def server(redis_url):
    """A connection of the test's own to the server."""
    with redis.Redis.from_url(redis_url, socket_timeout=10, retry=None) as connection:
        yield connection


@pytest.fixture
def keys(redis_url, namespace):
    """A deployed model for clients."""
    return deploy_model(redis_url, namespace, "m")


@pytest.fixture
def stub(redis_url, keys):
    """What serves it: a fleet of one thread."""
    with StubFleet(redis_url, keys) as fleet:
        yield fleet


@pytest.fixture
async def client(redis_url, namespace):
    """A client of it."""
    async with AsyncClient(redis_url, namespace=namespace, tenant="default") as client:
        yield client


@pytest.fixture
def fleet(redis_server, namespace, tmp_path):
    """A fleet of processes, none of which is started yet."""
    with running_fleet(redis_server, namespace, tmp_path) as found:
        yield found


@pytest.fixture
def model(fleet):
    """A name that no other test uses; whatever it was deployed as is idle in the end."""
    name = f"m{secrets.token_hex(4)}"
    yield name
    if fleet.server.sismember(f"{fleet.namespace}:models", name):
        fleet.wait_idle(name)
