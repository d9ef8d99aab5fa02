"""What a worker is given, without device processes."""

from batchfleet.consumer.worker.context import Devices, WorkerContext
from batchfleet.service.events import Events
from batchfleet.service.settings import Settings


def worker_context(watch, broker, *, settings=None, open_link=lambda _: None, **more):
    return WorkerContext(
        settings=settings or Settings(),
        events=Events(watch.log),
        clock=watch.clock,
        watchdog=watch.watchdog,
        broker=broker,
        devices=Devices(open_link=open_link),
        **more,
    )
