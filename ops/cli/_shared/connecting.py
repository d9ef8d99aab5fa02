"""How a command gets at the fleet and at the store."""

import os
import pwd
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from ....broker.blocking import BlockingExecutor
from ....broker.rights import OPERATOR, require_rights
from ....service.settings import Settings
from ...deployment import Operator

_CONNECTION_NAME = "batchfleet-cli"


@contextmanager
def connected(settings: Settings) -> Iterator[Operator]:
    """An operator of the fleet that the settings name, for as long as the command runs.

    Raises:
        SettingsError: no server is named.
    """
    with BlockingExecutor(settings.require_redis_url(), _CONNECTION_NAME) as executor:
        yield Operator(
            executor=executor,
            namespace=settings.namespace,
            draw_nonce=lambda: f"{_who()}:{secrets.token_hex(8)}",
        )


def _who() -> str:
    """Who changes a fleet, as others are told."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, say
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


@contextmanager
def changing(settings: Settings) -> Iterator[Operator]:
    """An operator who is going to change the fleet, and may do so.

    Raises:
        SettingsError: no server is named.
        DeniedError: a right is missing, without which a change would end half-way.
    """
    with connected(settings) as operator:
        require_rights(operator.executor, OPERATOR, settings.namespace)
        yield operator
