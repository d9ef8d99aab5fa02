"""Whose code a worker runs: the setting `allow_code`, and what it says about one version.

Whoever may write to a store would otherwise choose what runs on every worker, so that code out of
a store is refused unless the operator of the worker allows it. An installed distribution needs no
leave: installing it was the operator's own act.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..wire.errors import StoreError
from .code import CodeKind, code_files
from .manifest import Manifest

_DIGEST = "digest:"
_REASON_FILES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRule:
    """The setting, read.

    Attributes:
        everything: any code that the store holds.
        own: code in a local store that only the worker's own user can have put there.
        digests: sha256 of files that may run, wherever they lie.
    """

    everything: bool = False
    own: bool = False
    digests: frozenset[str] = frozenset()

    @staticmethod
    def parse(text: str) -> "CodeRule":
        """Read `none`, `any`, or a list of `own` and `digest:<sha256>`; empty is `none`."""
        terms = {term.strip() for term in text.split(",")}
        return CodeRule(
            everything="any" in terms,
            own="own" in terms,
            digests=frozenset(t.removeprefix(_DIGEST) for t in terms if t.startswith(_DIGEST)),
        )

    def __str__(self) -> str:
        if self.everything:
            return "any"
        terms = ["own"] if self.own else []
        return ",".join([*terms, *(_DIGEST + digest for digest in sorted(self.digests))]) or "none"


def check_allowed(rule: CodeRule, manifest: Manifest, foreign: str) -> None:
    """Let a version's code pass, or say why not and how to allow it.

    Args:
        rule: what this worker allows.
        manifest: of the version.
        foreign: why its files may be somebody else's; empty where they are surely one's own.

    Raises:
        StoreError: it must not run here.
    """
    code = manifest.code
    if code is None or code.kind is CodeKind.DISTRIBUTION or rule.everything:
        return
    if rule.own and not foreign:
        return
    unknown = _not_listed(rule, manifest)
    if not unknown:
        return
    names = ", ".join(list(unknown)[:_REASON_FILES_MAX])
    allowing = ",".join(_DIGEST + sha256 for sha256 in list(unknown.values())[:_REASON_FILES_MAX])
    why = f"own code is allowed, but {foreign}" if rule.own else f"allow_code is {rule}"
    raise StoreError(
        f"its code ({names}) must not run on this worker: {why}. Read it, then allow it with "
        f"--allow-code {allowing}"
    )


def _not_listed(rule: CodeRule, manifest: Manifest) -> Mapping[str, str]:
    files = {name: manifest.files[name].sha256 for name in code_files(manifest.files)}
    return {name: sha256 for name, sha256 in files.items() if sha256 not in rule.digests}
