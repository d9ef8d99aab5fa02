"""The command line in this process, and fleets of processes."""

import logging
import secrets
import warnings

import pytest
import structlog
from click.testing import CliRunner
from support.fleet import running_fleet

from batchfleet.ops.cli import main


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
