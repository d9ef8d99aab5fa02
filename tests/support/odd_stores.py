"""Stores in which one thing is not as it should be, beside what is good."""

import json
import os
from dataclasses import replace

from batchfleet.models.importing import builtin_draft
from batchfleet.models.manifest import MANIFEST_BYTES_MAX
from batchfleet.models.store import Store

GOOD = "good"


def make_good(root, version="1"):
    """A store with one version of a model that serves."""
    Store(str(root)).publish(replace(builtin_draft("echo"), model=GOOD, version=version), {})


def _manifest(root, version="2"):
    folder = root / GOOD / version
    folder.mkdir()
    return folder / "manifest.json"


def _wire(version="2", **more):
    draft = replace(builtin_draft("echo"), model=GOOD, version=version)
    return {**json.loads(draft.to_json()), **more}


def _text(raw):
    return lambda root: _manifest(root).write_bytes(raw)


def _a_fifo(root):
    os.mkfifo(_manifest(root))


def _a_folder(root):
    _manifest(root).mkdir()


def _unreadable(root):
    path = _manifest(root)
    path.write_text("{}")
    path.chmod(0)


def _a_link_out(root):
    outside = root.parent / "outside.json"
    outside.write_text(json.dumps(_wire()))
    _manifest(root).symlink_to(outside)


def _a_dangling_link(root):
    _manifest(root).symlink_to("nowhere")


def _a_version_out_of_the_store(root):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text(json.dumps(_wire()))
    (root / GOOD / "2").symlink_to(outside)


def _a_version_in_a_loop(root):
    (root / GOOD / "2").symlink_to("2")


def _huge(root):
    with _manifest(root).open("wb") as file:
        file.truncate(MANIFEST_BYTES_MAX * 100)


# What is wrong with `good/2` → how it is made, and a part of the reason.
BAD_VERSIONS = {
    "empty": (_text(b""), "must be JSON"),
    "no JSON": (_text(b"<html>"), "must be JSON"),
    "no object": (_text(b"[1]"), "JSON object"),
    "cut off": (_text(json.dumps(_wire()).encode()[:80]), "must be JSON"),
    "unknown key": (_text(json.dumps(_wire(colour="red")).encode()), "unknown key"),
    "another's": (_text(json.dumps(_wire(version="3")).encode()), "is that of good/3"),
    "odd types": (_text(json.dumps(_wire(limits=[1], signature={"inputs": [5]})).encode()),
                  "limits"),
    "nested": (_text(b'{"parameters":' * 5000), "must be JSON"),
    "not text": (_text(b"\xff\xfe\x00"), "must be JSON"),
    "huge": (_huge, "more than 1000000 bytes"),
    "fifo": (_a_fifo, "not a regular file"),
    "folder": (_a_folder, "not a regular file"),
    "unreadable": (_unreadable, "Permission denied"),
    "link out": (_a_link_out, "out of the store"),
    "dangling link": (_a_dangling_link, "cannot be followed"),
    "version out": (_a_version_out_of_the_store, "out of the store"),
    "version loop": (_a_version_in_a_loop, "cannot be followed"),
    "no manifest": (lambda root: (root / GOOD / "2").mkdir(), "no manifest.json"),
}  # fmt: skip


def _a_model_out_of_the_store(root):
    outside = root.parent / "other"
    outside.mkdir()
    (root / "bad").symlink_to(outside)


def _an_unreadable_model(root):
    (root / "bad").mkdir()
    (root / "bad").chmod(0)


# What else may lie in a store → how it is made, and a part of the reason; "" where it is ignored.
BAD_MODELS = {
    "no name": (lambda root: (root / "no name").mkdir(), "not a name"),
    "fifo": (lambda root: os.mkfifo(root / "bad"), "neither a folder nor a file"),
    "model out": (_a_model_out_of_the_store, "out of the store"),
    "dangling": (lambda root: (root / "bad").symlink_to("nowhere"), "cannot be followed"),
    "unreadable": (_an_unreadable_model, "Permission denied"),
    "hidden": (lambda root: (root / ".snapshot").mkdir(), ""),
    "lost": (lambda root: (root / "lost+found").mkdir(mode=0), ""),
    "note": (lambda root: (root / "README").write_text("x"), ""),
    "not UTF-8": (lambda root: (root / os.fsdecode(b"\xff")).mkdir(), "not a name"),
}
