"""Keys and groups of the raw queue."""

INGRESS = "raw:{m}:in"
QUEUE = "raw:{m}:q"
ROUTER_GROUP = "router"
WORKER_GROUP = "worker"
OPEN_PREFIX = b"raw:{m}:req:"
REPLY_PREFIX = b"raw:{m}:re:"
CHANNEL_PREFIX = "raw:in:"
