"""Which precision a version is deployed with. It is settled once: an index must not mix several."""

from collections.abc import Callable
from dataclasses import replace

from ..models.manifest import AUTO, Manifest
from ..wire.deployment import Deployment, VersionRecord
from ..wire.errors import SettingsError, VersionRefusedError

Judge = Callable[[], str]
"""Measures on this machine what `auto` means for a version; raises `VersionRefusedError`."""


def settle(
    manifest: Manifest, deployed: Deployment | None, wanted: str, judge: Judge
) -> VersionRecord:
    """The record to deploy, with its precision.

    A version whose manifest says `auto` gets what the operator wants, else what it was deployed
    with before, else what `judge` finds.

    Args:
        manifest: of the version.
        deployed: what is deployed of the model now.
        wanted: the operator's choice; may be empty.
        judge: asked only if nothing else says it.

    Raises:
        SettingsError: the manifest says another precision than the operator wants.
        VersionRefusedError: the version cannot be measured here.
    """
    record = manifest.record()
    if manifest.precision != AUTO:
        if wanted not in ("", manifest.precision):
            raise SettingsError(
                f"{manifest.model}/{manifest.version} was published with precision "
                f"{manifest.precision}; only one with {AUTO} leaves the choice"
            )
        return record
    before = None if deployed is None else _record_of(deployed, manifest.version)
    if not wanted and before is not None and before.lineage == record.lineage:
        return replace(record, precision=before.precision)
    return replace(record, precision=wanted or _judged(judge))


def _record_of(deployed: Deployment, version: str) -> VersionRecord | None:
    kept = deployed.kept.get(version)
    return deployed.versions.get(version) or (None if kept is None else kept.record)


def _judged(judge: Judge) -> str:
    try:
        return judge()
    except VersionRefusedError as error:
        raise VersionRefusedError(
            f"{error}; to deploy from a machine that cannot run it, name its precision "
            "(--precision exact or bf16)"
        ) from error
