"""Every key of the contract, in one place.

All keys of one model carry the hash tag `{model}` (or `{model~partition}`), so that a script that
touches several of them stays on one Cluster slot. `docs/protocol.md` lists type and life of each.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .limits import NOTIFY_PREFIX_LENGTH
from .names import is_name_bytes

DEFAULT_NAMESPACE = "bf"
DEFAULT_TENANT = "default"
PRIORITIES = ("high", "normal", "low")
_EDGE_DIGITS = 18

INGRESS_GROUP = "router"
WORK_GROUP = "worker"


def models_key(namespace: str) -> str:
    """Set of the names of all deployed models."""
    return f"{namespace}:models"


def routers_key(namespace: str) -> str:
    """Set of the names of the routers that have announced themselves."""
    return f"{namespace}:routers"


def router_key(namespace: str, router: str) -> str:
    """String in which a router announces itself; there as long as it lives."""
    return f"{namespace}:router:{router}"


def jobs_key(namespace: str) -> str:
    """Sorted set of the live jobs workers → when each was last heard of."""
    return f"{namespace}:jobs"


def jobs_queue(namespace: str) -> str:
    """Name of the queue of rq in which steps of rolls wait."""
    return f"{namespace}:rolls"


def member(tenant: str, request_id: str) -> str:
    """How a request is named inside `due`: neither part can hold a colon."""
    return f"{tenant}:{request_id}"


def read_member(raw: bytes) -> tuple[str, str] | None:
    """The inverse of `member`: tenant and id; None for what names no request."""
    tenant, _, request_id = raw.partition(b":")
    if not is_name_bytes(tenant) or not is_name_bytes(request_id):
        return None
    return tenant.decode(), request_id.decode()


class Queue(NamedTuple):
    """Which shared work a stream holds: of one version, priority and length bucket, by its edge."""

    version: str
    priority: str
    edge: int

    @classmethod
    def parse(cls, stream: str) -> "Queue":
        """Read the name of a stream, as `ModelKeys.queue` makes it.

        Raises:
            ValueError: it is none of a queue.
        """
        mark, version, priority, edge = stream.rsplit(":", 4)[1:]
        is_edge = edge.isdecimal() and len(edge) <= _EDGE_DIGITS
        if mark != "q" or priority not in PRIORITIES or not is_edge:
            raise ValueError("no name of a queue")
        return cls(version, priority, int(edge))


@dataclass(frozen=True)
class ModelKeys:
    """The keys of one model; one value a model, made once and passed on."""

    namespace: str
    model: str
    partition: int | None = None

    @cached_property
    def prefix(self) -> str:
        """`ns:{model}:`, the start of every key of the model."""
        tag = self.model if self.partition is None else f"{self.model}~{self.partition}"
        return f"{self.namespace}:{{{tag}}}:"

    @cached_property
    def tenants(self) -> str:
        """Set of tenants that the model is deployed for."""
        return self.prefix + "tenants"

    @cached_property
    def deploy(self) -> str:
        """Hash: versions, their signatures and limits, epoch and nonce."""
        return self.prefix + "deploy"

    @cached_property
    def due(self) -> str:
        """Sorted set of the open requests, `tenant:id` → deadline. The one gate."""
        return self.prefix + "due"

    @cached_property
    def ttl(self) -> str:
        """Hash `tenant:id` → TTL of the reply, of open requests that asked for another."""
        return self.prefix + "ttl"

    @cached_property
    def workers(self) -> str:
        """Sorted set worker → beat counter; present = alive."""
        return self.prefix + "workers"

    @cached_property
    def lost(self) -> str:
        """Set of buried or departed workers whose entries are still to be recovered."""
        return self.prefix + "lost"

    @cached_property
    def stats(self) -> str:
        """Hash: per version, how many requests ended how, and what they cost."""
        return self.prefix + "stats"

    @cached_property
    def rolls(self) -> str:
        """List of the last rolls that have ended, the newest first."""
        return self.prefix + "rolls"

    @cached_property
    def roll_counts(self) -> str:
        """Hash: what the versions of a roll had done at some moments of its step."""
        return self.prefix + "roll"

    @cached_property
    def journal(self) -> str:
        """Stream of finished requests: errors always, others sampled."""
        return self.prefix + "journal"

    @cached_property
    def dead(self) -> str:
        """Stream of requests that were given up, with their inputs and the error."""
        return self.prefix + "dead"

    @cached_property
    def later(self) -> str:
        """Sorted set entry id in `parked` → server time (ms) at which it is moved to its queue."""
        return self.prefix + "later"

    @cached_property
    def parked(self) -> str:
        """Stream, without a group, of the bodies of requests that are delayed or run again."""
        return self.prefix + "parked"

    @cached_property
    def undeployed(self) -> str:
        """Mark of a model that was taken out of service, so that nobody brings it back."""
        return self.prefix + "undeployed"

    def ingress(self, tenant: str) -> str:
        """Stream that a tenant's callers add to."""
        return f"{self.prefix}in:{tenant}"

    def queue(self, version: str, priority: str, bucket: int) -> str:
        """Stream of shared work for one version, priority and length bucket."""
        return f"{self.prefix}q:{version}:{priority}:{bucket}"

    def worker_stream(self, worker: str) -> str:
        """Stream of one worker's session work."""
        return f"{self.prefix}w:{worker}"

    def worker(self, worker: str) -> str:
        """Hash in which a worker announces itself."""
        return f"{self.prefix}worker:{worker}"

    def bell(self, version: str) -> str:
        """List of wake-up tokens for the workers of one version."""
        return f"{self.prefix}bell:{version}"

    def worker_bell(self, worker: str) -> str:
        """List of wake-up tokens for one worker."""
        return f"{self.prefix}bell:w:{worker}"

    def tombstone(self, tenant: str, request_id: str) -> str:
        """String left by a finished request, for joining repeats."""
        return f"{self.prefix}req:{tenant}:{request_id}"

    def reply(self, tenant: str, request_id: str) -> str:
        """The reply key: a list with exactly one terminal item."""
        return f"{self.prefix}re:{tenant}:{request_id}"

    def blob(self, tenant: str, request_id: str) -> str:
        """String with the inputs of a request that are too large for its entry."""
        return f"{self.prefix}blob:{tenant}:{request_id}"

    def outputs_blob(self, tenant: str, request_id: str) -> str:
        """String with the outputs of a request that are too large for its reply."""
        return f"{self.prefix}blob:{tenant}:{request_id}:out"

    def channel(self, tenant: str, request_id: str) -> str:
        """Sharded channel for notifications about ids with the same first characters."""
        return f"{self.prefix}done:{tenant}:{request_id[:NOTIFY_PREFIX_LENGTH]}"


def read_queue(keys: ModelKeys, stream: str) -> Queue | None:
    """The inverse of `ModelKeys.queue`; None for what is no name of a queue of this model."""
    try:
        found = Queue.parse(stream)
    except ValueError:
        return None
    return found if keys.queue(*found) == stream else None
