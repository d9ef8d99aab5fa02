"""Device processes for tests of this folder."""

import os

import pytest
from support.device_process import running_device


@pytest.fixture
def device():
    """A device process of this test alone, with the models of `support.device_models`."""
    with running_device() as running:
        yield running


@pytest.fixture(scope="module")
def shared_device():
    """For tests that load a lane of their own and leave the process as it was."""
    with running_device() as running:
        yield running


@pytest.fixture
def fifo(tmp_path):
    """A pipe that a model waits for until `support.device_process.release` opens it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path
