"""The program around a device process: whom it dies with, its signals, its logs, its exit."""

import argparse
import faulthandler
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import structlog

from ...service.clock import SystemClock
from ...service.lifecycle import die_with_parent
from ...service.logs import LOG_FORMATS, LOG_LEVELS, DescriptorLog, configure_logs
from ...service.memory import keep_freed_memory
from ..link.frames import ChannelClosedError, FrameChannel
from ..link.protocol import EXIT_MODEL_LEFT
from .faults import ModelLeftError
from .forks import isolate_forks
from .host import (
    die_first_for_memory,
    end_group,
    end_with,
    keep_from_children,
    make_prints_safe,
    own_log_descriptor,
)
from .loading import Opener, OpeningOptions
from .process import DeviceProcess
from .signals import outlast_signals

_EXIT_CRASHED = 70
# Threads that preprocess in Python hold the interpreter for this long at most while the device
# thread, back from a native call, waits for it (the default is 5 ms, often more than a batch).
_SWITCH_INTERVAL_S = 0.0005


def main(make_opener: Callable[[OpeningOptions], Opener]) -> NoReturn:
    """Serve the connection on descriptor `--fd` for parent `--parent`, then leave.

    Exits with 0 after `Stop` or when the connection closes, with `EXIT_MODEL_LEFT` where a model's
    code asked for the end, with `_EXIT_CRASHED` after a bug.
    """
    arguments = _parser().parse_known_args()[0]
    die_with_parent(arguments.parent)
    keep_from_children(arguments.fd)
    if arguments.lifeline is not None:
        end_with(arguments.lifeline, arguments.parent)
    keep_freed_memory()
    log_descriptor = own_log_descriptor()
    write_line = DescriptorLog(log_descriptor).write_line
    configure_logs(arguments.log_level, arguments.log_format, write_line)
    # Bound before any model's code, which may configure logs of its own.
    logger = structlog.get_logger().bind(process="device", pid=os.getpid())
    try:
        die_first_for_memory()
    except OSError as error:  # /proc is read-only in some containers
        logger.warning("oom_score_not_set", reason=str(error))
    outlast_signals()
    faulthandler.enable(log_descriptor)
    make_prints_safe()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    options = OpeningOptions(
        allow_code=arguments.allow_code,
        cache=arguments.cache and arguments.cache.absolute(),
        sources=arguments.sources and arguments.sources.absolute(),
        own_store=arguments.own_store,
    )
    _leave(_serve(arguments.fd, arguments.parent, make_opener(options), logger))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m batchfleet.consumer.device")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of the connection")
    parser.add_argument("--parent", type=int, required=True, help="process id of the parent")
    parser.add_argument(
        "--lifeline", type=int, help="descriptor of a pipe that breaks when the parent ends"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info")
    parser.add_argument("--log-format", choices=LOG_FORMATS, default="json")
    parser.add_argument("--allow-code", default="", help="as the setting of that name")
    parser.add_argument("--cache", type=Path, help="folder for copies of files")
    parser.add_argument(
        "--own-store", action="store_true", help="refuse what other users can write to"
    )
    parser.add_argument("--sources", type=Path, help="folder whose files appear in tracebacks")
    return parser


def _serve(descriptor: int, parent: int, open_files: Opener, logger: Any) -> int:
    def crashed(error: BaseException) -> NoReturn:
        if isinstance(error, ChannelClosedError):
            _leave_alone(parent)
        if isinstance(error, ModelLeftError):
            _leave(EXIT_MODEL_LEFT)
        logger.critical("device_thread_crashed", exc_info=error)
        _leave(_EXIT_CRASHED)

    channel = FrameChannel(socket.socket(fileno=descriptor))
    isolate_forks(channel)
    try:
        DeviceProcess(channel, open_files, SystemClock(), logger, crashed).serve()
    except ChannelClosedError:
        _leave_alone(parent)
    except BaseException as error:  # noqa: BLE001  `crashed` ends the process
        crashed(error)
    return 0


def _leave_alone(parent: int) -> NoReturn:
    """Exit; where the main process is gone, end what a model's code has started as well."""
    if os.getppid() != parent:
        end_group()
    _leave(0)


def _leave(status: int) -> NoReturn:
    """Exit without waiting for threads, which may be inside a native call for minutes."""
    os._exit(status)
