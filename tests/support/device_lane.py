"""A lane of a device process without the process."""

import structlog

from batchfleet.consumer.device.faults import FaultLog
from batchfleet.consumer.device.lanes import Lane
from batchfleet.service.clock import ManualClock
from batchfleet.wire.deployment import VersionRecord


def lane_of(model, clock=None, **record):
    """A loaded lane of this model; `record` is what the deploy record of its version says."""
    logger = structlog.get_logger()
    return Lane(
        number=1,
        model=model,
        record=VersionRecord(version="1", **record),
        device="cpu",
        logger=logger,
        fault_log=FaultLog(logger, clock or ManualClock()),
    )
