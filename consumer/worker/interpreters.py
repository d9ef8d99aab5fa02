"""Which interpreter a version's device process runs under, and whether it can and may.

The one place where a worker chooses a program. The record says which environment a version wants,
the manifest in the store must say the same, the operator's settings must allow it, and nobody else
may have written to it: until all that is so, nothing of it is started.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from ...models.agreement import disagreement
from ...models.cache import default_cache
from ...models.environment_rule import EnvironmentRule
from ...models.environments import python_of
from ...models.store import Store
from ...service.settings import Settings
from ...wire.deployment import VersionRecord
from ...wire.errors import StoreError
from ...wire.texts import safe_text
from ..link.device_command import probe_command

_PROBE_TIMEOUT_S = 20.0
_REASON_CHARACTERS_MAX = 300


class Interpreters:
    """Finds the interpreters of environments; one that was found fit is not looked at again."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        """`environ` is that of device processes."""
        self._settings = settings
        self._environ = environ
        self._rule = EnvironmentRule.parse(settings.allow_environments)
        self._fit: dict[str, Path] = {}

    def find(self, model: str, record: VersionRecord) -> tuple[Path | None, str]:
        """The interpreter of a version, None for the worker's own; and why there is none."""
        environment = record.environment
        if not environment:
            # Nothing is chosen: the device process compares the record with the manifest.
            return None, ""
        try:
            self._require_agreement(model, record)
            known = self._fit.get(environment)
            if known is not None and known.exists():
                return known, ""
            settings = self._settings
            cache = Path(settings.cache) if settings.cache else default_cache()
            python = python_of(environment, f"{model}/{record.version}", self._rule, cache)
        except StoreError as error:
            return None, str(error)
        reason = _why_unfit(python, self._environ)
        if reason:
            return None, f"its environment {environment} cannot run a device process: {reason}"
        self._fit[environment] = python
        return python, ""

    def _require_agreement(self, model: str, record: VersionRecord) -> None:
        """Go on where the version in the store wants this environment, and it is allowed.

        Raises:
            StoreError: it does not, it is not, or the store cannot be trusted or read.
        """
        if why := self._rule.refusal(record.environment):
            raise StoreError(why)  # without a look at the store
        store = Store(self._settings.store)
        if not self._settings.shares_store and (why := store.why_not_ours(model, record.version)):
            raise StoreError(f"{why}; `shared_store` can allow a store by its path")
        if why := disagreement(record, store.manifest(model, record.version)):
            raise StoreError(why)


def _why_unfit(python: Path, environ: Mapping[str, str]) -> str:
    """Why a device process would not start under an interpreter; empty where it would."""
    try:
        done = subprocess.run(
            probe_command(python),
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return safe_text(said[-1], _REASON_CHARACTERS_MAX)
