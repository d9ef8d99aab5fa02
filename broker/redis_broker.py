"""The broker that a fleet runs on: a Redis or Valkey server."""

from dataclasses import dataclass, field

from .blocking import BlockingExecutor
from .interface import COMMAND_TIMEOUT_S, AsyncExecutor, ChannelSubscription, Executor, OnMessage
from .looping import LoopingExecutor, Subscription


@dataclass(frozen=True, slots=True)
class RedisBroker:
    """A server by its URL (`redis://`, `rediss://` or `unix://`), which may hold a password."""

    url: str = field(repr=False)

    def connect(self, name: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Executor:
        """A connection for one thread; see `Broker`."""
        return BlockingExecutor(self.url, name, timeout_s)

    def connect_looping(self, name: str) -> AsyncExecutor:
        """A connection for one event loop."""
        return LoopingExecutor(self.url, name)

    def subscribe(self, name: str, on_message: OnMessage) -> ChannelSubscription:
        """A connection for channels, of one event loop."""
        return Subscription(self.url, name, on_message)
