"""A fleet of one worker for models that a measurement makes up."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.support.fleet import running_fleet
from tests.support.server import running_server

NAMESPACE = "own"


@contextmanager
def own_fleet(*drafts, workers=1, **settings):
    """Serve these drafts with a router and workers, on a private server."""
    with (
        tempfile.TemporaryDirectory(prefix="batchfleet-own-") as folder,
        running_server({}) as server,
        running_fleet(server, NAMESPACE, Path(folder), refresh_ms=500, **settings) as fleet,
    ):
        fleet.bring_up(*drafts, workers=workers)
        yield fleet
