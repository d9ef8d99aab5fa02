"""What a command line has done with a version by a process of its own, without a fleet.

The process runs under the Python of the version's environment if it has one, and is told by files:

    <python> -m batchfleet.consumer.device.<module> JOB RESULT
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
import structlog

from ...service.clock import Clock, SystemClock
from ...service.logs import DescriptorLog, configure_logs
from ..link.protocol import Load
from .host import make_prints_safe, own_log_descriptor
from .opened import OpeningOptions

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionJob:
    """Which version, and how it is opened.

    Attributes:
        store, model, version, device, threads, allow_code, cache: as for a worker.
        record: the deploy record of the version in JSON.
        sources: folder whose files traces name; may be empty.
    """

    store: str
    model: str
    version: str
    device: str
    threads: int
    allow_code: str
    cache: str
    record: str
    sources: str
    log_level: str
    log_format: str

    @property
    def load(self) -> Load:
        """The message that would load the version."""
        record = self.record.encode()
        return Load(
            1, self.model, self.version, self.store, self.device, self.threads, record, "", 0, 0
        )

    @property
    def options(self) -> OpeningOptions:
        """How the version is opened."""
        return OpeningOptions(
            allow_code=self.allow_code,
            cache=Path(self.cache) if self.cache else None,
            sources=Path(self.sources) if self.sources else None,
        )


JobT = TypeVar("JobT", bound=VersionJob)


def run_from_files(kind: type[JobT], run: Callable[[JobT, Clock, Any], Any]) -> None:
    """Run the job in the first file that the command line names; its result fills the second."""
    job_path, result_path = sys.argv[1:]
    job = kind(**orjson.loads(Path(job_path).read_bytes()))
    configure_logs(job.log_level, job.log_format, DescriptorLog(own_log_descriptor()).write_line)
    make_prints_safe()
    logger = structlog.get_logger().bind()  # before any model's code, which may configure its own
    try:
        result = run(job, SystemClock(), logger)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    Path(result_path).write_bytes(orjson.dumps(result))
