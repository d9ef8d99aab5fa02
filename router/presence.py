"""Presence: a router announces that it lives, and which deploy records it follows."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..broker import routers
from ..broker.errors import UnusableKeyError
from ..broker.interface import Executor
from ..wire.announcements import router_announcement
from ..wire.deployment import Stamp
from ..wire.errors import ServerError

_REFRESHES = 3
# A busy machine must not make a router that looks often seem to be gone.
_TTL_MS_MIN = 1_000


class Presence:
    """Owned by the keeper's thread.

    One round trip per refresh, for any number of models; records are listed only when they change.
    """

    def __init__(self, namespace: str, router: str, refresh_ms: int) -> None:
        self._namespace = namespace
        self._router = router
        self._ttl_ms = max(_TTL_MS_MIN, _REFRESHES * refresh_ms)
        self._sent: bytes | None = None

    def announce(self, executor: Executor, stamps: Mapping[str, Stamp]) -> None:
        """Announce that the router lives and follows these records, model → stamp.

        Raises:
            ServerError: the server failed; the next call sends everything again.
        """
        if self._sent is None:
            self._prune(executor)
        namespace, router, ttl_ms = self._namespace, self._router, self._ttl_ms
        wanted, sent = router_announcement(stamps), self._sent
        self._sent = None
        enlist = routers.enlist(namespace, router)
        renew = routers.renew(namespace, router, ttl_ms)
        listed, _, size, _ = _checked(executor.run_each([*enlist, *renew]))
        if isinstance(listed, UnusableKeyError):  # of another type, and not ours: replace it
            executor.run_all([routers.forget_names(namespace), *enlist])
        # It may have expired while this process was frozen, or been written by others.
        if wanted != sent or size != len(wanted):
            executor.run(routers.announce(namespace, router, wanted, ttl_ms))
        self._sent = wanted

    def leave(self, executor: Executor) -> None:
        """Announce that the router stops.

        Raises:
            ServerError: the server failed; it will be missed within three refreshes.
        """
        self._sent = None
        executor.run_each(routers.leave(self._namespace, self._router))

    def _prune(self, executor: Executor) -> None:
        """Forget those that died, so that their names don't pile up."""
        try:
            names = executor.run(routers.names(self._namespace))
        except UnusableKeyError:
            return
        looks = [routers.stamps(self._namespace, name) for name in names]
        found = _checked(executor.run_each(looks))
        silent = [
            name
            for name, stamps in zip(names, found, strict=True)
            if not isinstance(stamps, Mapping)
        ]
        if silent:
            executor.run(routers.prune_names(self._namespace, silent))


def _checked(answers: Sequence[Any]) -> Sequence[Any]:
    """Answers without an error, except for keys of the wrong type.

    Raises:
        ServerError: the server failed.
    """
    for answer in answers:
        if isinstance(answer, ServerError) and not isinstance(answer, UnusableKeyError):
            raise answer
    return answers
