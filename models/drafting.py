"""From a user's `model.py` to the draft of a version.

The file is read, not run: what it says about itself must be literals, so that publishing needs none
of the packages that the model needs and does nothing that the model does. It may say so in the
class (`signature`, `limits`, `bytes_per_token`, `precision`), or in a module-level `MANIFEST` with
any key of a manifest; the class goes before the module, and what the command line says goes before
both.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from ..service.regular_files import read_regular
from ..wire.codec import plain_json
from ..wire.errors import BatchfleetError, StoreError
from .code import RUNTIME
from .environment_rule import LOCKED
from .files import describe_file, files_under
from .hooks import defines, find_hook_fault
from .manifest import Manifest

_PACKAGE = "batchfleet"
_BASE = "Model"
_SOURCE_BYTES_MAX = 16 * 1024 * 1024
_IN_CLASS = ("signature", "limits", "bytes_per_token", "precision")
_FILLED_IN = ("runtime", "code", "files", "code_sha256")


class DraftError(BatchfleetError):
    """A version cannot be made of this file; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """Options of publishing. Empty: the file's value, else the default.

    Attributes:
        model, version: names.
        class_name: which class of the file.
        limits: limit → value.
        extras: files and folders that the version holds too, under their own names.
        requirements: a lock file to make the environment from.
        environment: path of a virtual environment.
    """

    model: str = ""
    version: str = ""
    class_name: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    extras: Sequence[Path] = ()
    requirements: Path | None = None
    environment: str = ""


def draft_of_file(path: Path, wishes: PublishOptions) -> tuple[Manifest, dict[str, Path]]:
    """The draft of a version whose class is in `path`, and its files by their names.

    Raises:
        DraftError: the file cannot be read, has no such class, or says something ill-formed.
    """
    tree = _parse(path)
    found = _choose_class(path, tree, wishes.class_name)
    own = _literal(path, tree.body, "MANIFEST") or {}
    if not isinstance(own, dict):
        raise DraftError(f"{path}: MANIFEST must be a dict")
    _refuse_filled_in(path, own)
    said = {name: _literal(path, found.body, name) for name in _IN_CLASS}
    wire = {**own, **{name: value for name, value in said.items() if value is not None}}
    wire |= {"runtime": RUNTIME, "code": {"source": path.name, "class": found.name}}
    wire |= _given({"model": wishes.model, "version": wishes.version})
    wire["limits"] = {**_object(path, "limits", wire.get("limits", {})), **wishes.limits}
    sources = _sources(path, wishes)
    wire |= _environment(wishes)
    missing = [f"--{_FLAGS[name]}" for name in _FLAGS if name not in wire]
    if missing:
        raise DraftError(f"{path} has no name for the version: add {' and '.join(missing)}")
    try:
        manifest = Manifest.from_json(_encode(path, wire))
    except StoreError as error:
        raise DraftError(f"{path}: {error}") from error
    _check_methods(path, tree, found, manifest)
    return manifest, sources


_FLAGS = {"model": "name", "version": "version"}


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(_read(path), str(path))
    except (SyntaxError, ValueError) as error:
        at = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        raise DraftError(f"{path}{at} is not Python: {error}") from error


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, _SOURCE_BYTES_MAX)
    except OSError as error:
        raise DraftError(f"cannot read {path}: {error.strerror}") from error


def _choose_class(path: Path, tree: ast.Module, name: str) -> ast.ClassDef:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name:
        if name not in classes:
            raise DraftError(f"{path} has no class {name!r}; it has: {_listed(classes)}")
        return classes[name]
    roots = _model_names(tree)
    models = [one for one in classes.values() if _is_model(one, classes, roots)]
    if not models:
        raise DraftError(
            f"{path} has no class derived from batchfleet.Model; name one with {path.name}:Class "
            f"(it has: {_listed(classes)}), or start from `batchfleet models init NAME`"
        )
    bases = {base.id for one in models for base in one.bases if isinstance(base, ast.Name)}
    last = [one for one in models if one.name not in bases]
    if len(last) != 1:
        names = _listed(one.name for one in last)
        raise DraftError(f"{path} has several models: {names}; name one with {path.name}:Class")
    return last[0]


def _model_names(tree: ast.Module) -> set[str]:
    """The names that batchfleet's `Model` goes by in a file."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if (node.module or "").partition(".")[0] == _PACKAGE]
    aliases = [alias for node in ours for alias in node.names if alias.name == _BASE]
    return {_BASE, *(alias.asname for alias in aliases if alias.asname)}


def _is_model(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], roots: set[str]) -> bool:
    for name in _bases(node):
        if name in roots:
            return True
        parent = classes.get(name)
        if parent is not None and parent is not node and _is_model(parent, classes, roots):
            return True
    return False


def _bases(node: ast.ClassDef) -> list[str]:
    return [
        base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        for base in node.bases
    ]


def _check_methods(path: Path, tree: ast.Module, found: ast.ClassDef, manifest: Manifest) -> None:
    known = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    roots, line, has_all_bases = _model_names(tree), [found], True
    for one in line:  # which grows
        for name in _bases(one):
            if name in roots:
                continue
            if name in known and known[name] not in line:
                line.append(known[name])
            else:
                has_all_bases = False
    fault = find_hook_fault(line, has_all_bases=has_all_bases)
    without_lengths = manifest.bytes_per_token <= 0 and manifest.limits.max_length > 0
    if without_lengths and has_all_bases and not defines(line, "preprocess"):
        fault = (
            "max_length has no effect without lengths: set bytes_per_token, or a "
            "preprocess that returns lengths"
        )
    if fault:
        raise DraftError(f"{path}:{found.lineno}: {fault}")


def _listed(names: Any) -> str:
    return ", ".join(names) or "none"


def _literal(path: Path, body: Sequence[ast.stmt], name: str) -> Any:
    """The value assigned to `name` in this block; None where nothing is."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        if not any(isinstance(target, ast.Name) and target.id == name for target in targets):
            continue
        assert isinstance(node, ast.Assign | ast.AnnAssign)
        assert node.value is not None
        try:
            return ast.literal_eval(node.value)
        except (ValueError, TypeError, SyntaxError) as error:
            raise DraftError(
                f"{path}:{node.lineno}: {name} must be a literal (text, number, list or dict); "
                "the file is parsed, not imported"
            ) from error
    return None


def _refuse_filled_in(path: Path, own: Mapping[str, Any]) -> None:
    wrong = [name for name in _FILLED_IN if name in own]
    if wrong:
        raise DraftError(f"{path}: MANIFEST must not contain {_listed(wrong)}; these are filled in")


def _given(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _object(path: Path, name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DraftError(f"{path}: {name} must be a dict")
    return value


def _encode(path: Path, wire: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(plain_json("its values", wire))
    except ValueError as error:
        raise DraftError(f"{path}: its manifest values are not plain JSON: {error}") from error


def _sources(path: Path, wishes: PublishOptions) -> dict[str, Path]:
    sources = {path.name: path}
    extras = [*wishes.extras, *([wishes.requirements] if wishes.requirements else [])]
    for extra in extras:
        for name, file in _files_of(extra).items():
            if sources.setdefault(name, file) != file:
                raise DraftError(f"two files would be called {name}: {sources[name]} and {file}")
    return sources


def _files_of(path: Path) -> dict[str, Path]:
    if not path.is_dir():
        return {path.name: path}
    prefix = f"{path.name}/" if path.name else ""
    try:
        return {prefix + name: file for name, file in files_under(path).items()}
    except StoreError as error:
        raise DraftError(str(error)) from error


def _environment(wishes: PublishOptions) -> dict[str, str]:
    if wishes.requirements is None:
        return _given({"environment": wishes.environment})
    if b"--hash=sha256:" not in _read(wishes.requirements):
        raise DraftError(
            f"{wishes.requirements} has no hashes: create it with `pip-compile --generate-hashes` "
            "or `uv pip compile --generate-hashes`"
        )
    return {"environment": LOCKED + describe_file(wishes.requirements).sha256}
