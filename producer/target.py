"""Finds the fleet that a client talks to."""

import os
from dataclasses import dataclass

from ..broker.interface import Broker
from ..broker.redis_broker import RedisBroker
from ..service.addresses import redis_url_fault
from ..service.settings import Settings
from ..service.settings_sources import load_settings
from ..wire.errors import SettingsError
from ..wire.names import require_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A broker, a fleet on it, and the tenant of all requests."""

    broker: Broker
    namespace: str
    tenant: str


def find_target(
    redis_url: str | None,
    namespace: str | None,
    tenant: str | None,
    broker: Broker | None = None,
) -> Target:
    """What the caller gave, and the settings of the process for the rest.

    Raises:
        SettingsError: no server is named, or the settings are wrong.
        CallerError: namespace or tenant is not a name.
    """
    if redis_url is not None and (fault := redis_url_fault(str(redis_url))):
        raise SettingsError(f"redis_url {fault}")
    settings = Settings()
    names_server = redis_url is not None or broker is not None
    if not names_server or namespace is None or tenant is None:
        settings, _ = load_settings({}, os.environ)
    return Target(
        broker=broker or RedisBroker(redis_url or settings.require_redis_url()),
        namespace=require_name("namespace", namespace or settings.namespace),
        tenant=require_name("tenant", tenant or settings.tenant),
    )
