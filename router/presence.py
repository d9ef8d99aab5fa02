"""Presence: a router tells that it is there, and by which deploy records it acts."""

from collections.abc import Mapping

from ..broker import announcing
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

    One exchange a refresh, whatever is deployed; the records are listed only when they change.
    """

    def __init__(self, namespace: str, router: str, refresh_ms: int) -> None:
        self._namespace = namespace
        self._router = router
        self._ttl_ms = max(_TTL_MS_MIN, _REFRESHES * refresh_ms)
        self._told: bytes | None = None

    def announce(self, executor: Executor, stamps: Mapping[str, Stamp]) -> None:
        """Tell that the router lives and acts by these records, model → stamp.

        Raises:
            ServerError: the server failed; the next call tells it whole.
        """
        namespace, router, ttl_ms = self._namespace, self._router, self._ttl_ms
        if self._told is None:
            self._prune(executor)
        said, told = router_announcement(stamps), self._told
        self._told = None
        whole = announcing.announce_router(namespace, router, said, ttl_ms)
        renewal = announcing.renew_router(namespace, router, ttl_ms)
        enlist = announcing.enlist_router(namespace, router)
        news, listed, *_ = executor.run_each([whole if said != told else renewal, *enlist])
        for answer in (news, listed):
            if isinstance(answer, ServerError) and not isinstance(answer, UnusableKeyError):
                raise answer
        if news is False:  # this process was frozen for as long as that
            executor.run(whole)
        if isinstance(listed, UnusableKeyError):  # a foreign key, which gives way
            executor.run_all([announcing.forget_names(namespace), *enlist])
        self._told = said

    def withdraw(self, executor: Executor) -> None:
        """Tell that the router stops.

        Raises:
            ServerError: the server failed; it will be missed within three refreshes.
        """
        self._told = None
        executor.run_each(announcing.withdraw_router(self._namespace, self._router))

    def _prune(self, executor: Executor) -> None:
        """Forget those that died, so that their names don't pile up."""
        try:
            names = executor.run(announcing.router_names(self._namespace))
        except UnusableKeyError:
            return
        found = executor.run_each(
            [announcing.router_stamps(self._namespace, name) for name in names]
        )
        silent = [name for name, stamps in zip(names, found, strict=True) if stamps is None]
        if silent:
            executor.run(announcing.prune_names(self._namespace, silent))
