"""`<python> -m batchfleet.consumer.device --fd N --parent PID`, started by the main process."""

from .opening import open_version
from .program import main

main(open_version)
