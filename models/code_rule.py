"""Whose code a worker runs: the setting `allow_code`, and what it says about one version.

Whoever may write to a store would otherwise choose what runs on every worker, so that code out of
a store is refused unless the operator of the worker allows it. An installed distribution is there
by the operator's own act, but importing a module runs it, and few modules were meant for that: it
may be asked for the classes that it offers as models, by entry points of the group
`batchfleet.models`, and for others only where the operator says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from ..wire.errors import StoreError
from .code import CodeKind, ModelCode, code_files, plain_distribution
from .manifest import Manifest

ENTRY_POINTS = "batchfleet.models"
_DIGEST = "digest:"
_DISTRIBUTION = "dist:"
_REASON_FILES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRule:
    """The setting, read.

    Attributes:
        everything: any code that the store holds.
        own: code in a local store that only the worker's own user can have put there.
        digests: sha256 of files that may run, wherever they lie.
        distributions: installed ones of which every module may be imported, in plain spelling.
    """

    everything: bool = False
    own: bool = False
    digests: frozenset[str] = frozenset()
    distributions: frozenset[str] = frozenset()

    @staticmethod
    def parse(text: str) -> "CodeRule":
        """Read `none`, `any`, or a list of `own`, `digest:<sha256>` and `dist:<name>`.

        Empty is `none`.
        """
        terms = {term.strip() for term in text.split(",")}
        return CodeRule(
            everything="any" in terms,
            own="own" in terms,
            digests=frozenset(t.removeprefix(_DIGEST) for t in terms if t.startswith(_DIGEST)),
            distributions=frozenset(
                plain_distribution(term.removeprefix(_DISTRIBUTION))
                for term in terms
                if term.startswith(_DISTRIBUTION)
            ),
        )

    def __str__(self) -> str:
        if self.everything:
            return "any"
        terms = ["own"] if self.own else []
        terms += [_DIGEST + digest for digest in sorted(self.digests)]
        terms += [_DISTRIBUTION + name for name in sorted(self.distributions)]
        return ",".join(terms) or "none"


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
    if code is None or rule.everything:
        return
    if code.kind is CodeKind.DISTRIBUTION:
        _check_distribution(rule, code)
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
        f"its code ({names}) is not allowed on this worker: {why}. Read it, then allow it with "
        f"--allow-code {allowing}"
    )


def _check_distribution(rule: CodeRule, code: ModelCode) -> None:
    """Let a class of an installed distribution pass where it is offered as a model, or allowed."""
    name, _ = code.distribution
    if plain_distribution(name) in rule.distributions or code.class_path in _offered_by(name):
        return
    raise StoreError(
        f"{code.class_path} of {code.source} must not be imported on this worker: the distribution "
        f"offers no such entry point of the group {ENTRY_POINTS}, and allow_code is {rule}. Allow "
        f"all of it with --allow-code {_DISTRIBUTION}{name}"
    )


def _offered_by(name: str) -> set[str]:
    """Classes that a distribution offers as models, as `module:Class`; nothing is imported."""
    try:
        points = metadata.distribution(name).entry_points.select(group=ENTRY_POINTS)
    except metadata.PackageNotFoundError as error:
        raise StoreError(f"it needs {name}, which is not installed: pip install {name}") from error
    return {f"{point.module}:{point.attr}" for point in points}


def _not_listed(rule: CodeRule, manifest: Manifest) -> Mapping[str, str]:
    files = {name: manifest.files[name].sha256 for name in code_files(manifest.files)}
    return {name: sha256 for name, sha256 in files.items() if sha256 not in rule.digests}
