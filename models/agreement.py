"""Whether a deploy record says of a version what its manifest says.

The record comes from the server, where a user with its rights may write anything; the manifest is
that of the version in the worker's own store. What they disagree on nobody may choose from.
"""

from collections.abc import Iterator

from ..wire.deployment import VersionRecord
from ..wire.names import shown
from .manifest import AUTO, Manifest

AS_IN_MANIFEST = ("lineage", "runtime", "environment", "device", "signature", "precision")


def disagreement(record: VersionRecord, manifest: Manifest) -> str:
    """In what a record differs from the version that it is of; empty where in nothing.

    Limits may differ: those are an operator's to change.
    """
    name = f"{manifest.model}/{manifest.version}"
    if (record.version, record.lineage) != (manifest.version, manifest.lineage):
        return (
            f"{name} in the store is not what was deployed (lineage {manifest.lineage}, deployed "
            f"{shown(record.lineage)}); deploy it again"
        )
    differing = ", ".join(_differing(record, manifest))
    if differing:
        return f"{name} in the store is not what was deployed ({differing}); deploy it again"
    return ""


def _differing(record: VersionRecord, manifest: Manifest) -> Iterator[str]:
    for name in AS_IN_MANIFEST:
        published, deployed = getattr(manifest, name), getattr(record, name)
        if published == deployed or (name == "precision" and published == AUTO):
            continue
        if isinstance(published, str):
            yield f"{name} {shown(published)}, deployed {shown(deployed)}"
        else:
            yield f"another {name}"
