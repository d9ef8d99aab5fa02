"""A lane of a device process without the process."""

import structlog

from batchfleet.consumer.device.faults import FaultLog
from batchfleet.consumer.device.inputs import RequestInputs
from batchfleet.consumer.device.loaded_models import (
    NOT_TAKEN,
    LoadedModel,
    PreparedRequest,
    take_all,
)
from batchfleet.consumer.device.preparing import prepare_inputs
from batchfleet.consumer.device.running import batch_of, run_batch
from batchfleet.wire.deployment import VersionRecord

from .manual_clock import ManualClock


def lane_of(model, clock=None, **record):
    """A loaded lane of this model; `record` is what the deploy record of its version says."""
    logger = structlog.get_logger()
    return LoadedModel(
        number=1,
        model=model,
        record=VersionRecord(version="1", **record),
        device="cpu",
        logger=logger,
        fault_log=FaultLog(logger, clock or ManualClock()),
    )


def given(columns, parameters=None):
    """The decoded inputs of a request."""
    return RequestInputs(columns, len(next(iter(columns.values()))), parameters, "refuse")


def prepared(lane, columns, number=1, parameters=None):
    """A preprocessed request."""
    return prepare_inputs(lane, given(columns, parameters), number=number)


def run_together(lane, *requests):
    """All rows of these requests as one batch: an output or an error for each."""
    return run_batch(lane, batch_of(1, take_all(requests)))


def open_request(number, values, *, lane=1, **fields):
    """A request whose rows wait, or have run where there are `outputs`."""
    rows = len(values)
    usual = {
        "accept": "",
        "wanted": (),
        "inputs": RequestInputs({}, rows, None, "refuse"),
        "lengths": [1] * rows,
        "kinds": [0] * rows,
        "truncated_tokens": 0,
        "outputs": [NOT_TAKEN] * rows,
        "missing": rows,
    }
    return PreparedRequest(number=number, lane=lane, values=list(values), **(usual | fields))
