"""`<python> -m batchfleet.consumer.device --fd N --parent PID`, started by the main process."""

from .opening import store_opener
from .program import main

main(store_opener)
