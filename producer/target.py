"""Which fleet a client talks to."""

import os
from dataclasses import dataclass

from ..service.settings import Settings, load_settings
from ..wire.names import require_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server, a fleet on it, and for whom requests are made."""

    redis_url: str
    namespace: str
    tenant: str


def find_target(redis_url: str | None, namespace: str | None, tenant: str | None) -> Target:
    """What the caller said, and for the rest the settings of the process.

    Raises:
        SettingsError: no server is named, or the settings are wrong.
        CallerError: namespace or tenant is not a name.
    """
    settings = Settings()
    if redis_url is None or namespace is None or tenant is None:
        settings, _ = load_settings({}, os.environ)
    return Target(
        redis_url=redis_url or settings.require_redis_url(),
        namespace=require_name("namespace", namespace or settings.namespace),
        tenant=require_name("tenant", tenant or settings.tenant),
    )
