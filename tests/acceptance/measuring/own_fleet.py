"""A fleet of one worker for models that a measurement makes up."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.support.fleet import running_fleet
from tests.support.server import running_server

NAMESPACE = "own"


@contextmanager
def own_fleet(*drafts, **settings):
    """Serve these drafts with a router and one worker, on a private server."""
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-own-") as folder,
        running_server({}) as server,
        running_fleet(server, NAMESPACE, Path(folder), refresh_ms=500, **settings) as fleet,
    ):
        fleet.bring_up(*drafts)
        yield fleet
