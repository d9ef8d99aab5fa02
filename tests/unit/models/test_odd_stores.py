"""What is wrong with one version or model concerns no other, and is named with its reason."""

import json
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.odd_stores import BAD_MODELS, BAD_VERSIONS, GOOD, make_good
from support.other_user import ATTACKER

from batchfleet.models.files import FILES_MAX, files_under
from batchfleet.models.importing import builtin_draft
from batchfleet.models.manifest import Manifest
from batchfleet.models.store import Store
from batchfleet.wire.errors import StoreError


@pytest.fixture
def root():
    """A store with one good model, in a folder that every user may enter."""
    with TemporaryDirectory(prefix="batchfleet-odd-") as name:
        path = Path(name) / "root"
        make_good(path)
        path.parent.chmod(0o755)
        yield path
        for folder in (path / "bad", path / "lost+found"):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o700)


@contextmanager
def without_rights_of_root():
    """Modes mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(ATTACKER)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("kind", BAD_VERSIONS)
def test_a_bad_version_is_left_out_and_the_one_before_is_the_newest(root, kind):
    make, reason = BAD_VERSIONS[kind]
    make(root)
    store = Store(str(root))
    with without_rights_of_root():
        survey, newest = store.survey(), store.newest(GOOD)
        with pytest.raises(StoreError):
            store.manifest(GOOD, "2")
    assert survey.models == {GOOD: ["1"]}
    (left_out,) = survey.left_out
    assert left_out.name == "good/2"
    assert reason in left_out.reason
    assert newest.manifest.version == "1"
    assert newest.left_out == [left_out]


@pytest.mark.parametrize("kind", BAD_MODELS)
def test_so_is_a_bad_model(root, kind):
    make, reason = BAD_MODELS[kind]
    make(root)
    with without_rights_of_root():
        survey = Store(str(root)).survey()
    assert survey.models == {GOOD: ["1"]}
    assert len(survey.left_out) == bool(reason)
    assert all(reason in one.reason and str(one).isprintable() for one in survey.left_out)


def test_where_every_version_is_bad_each_is_named(root):
    shutil.rmtree(root / GOOD / "1")
    BAD_VERSIONS["empty"][0](root)
    with pytest.raises(StoreError, match=r"no usable version of good: good/2 .*must be JSON"):
        Store(str(root)).newest(GOOD)


def test_files_of_a_volume_of_kubernetes_are_found(root, weights, tmp_path):
    """A ConfigMap: the names link to `..data`, which links to a folder with a time in its name."""
    draft = replace(builtin_draft("echo"), model="mounted")
    published = Store(str(tmp_path / "made")).publish(draft, {"w": weights})
    home = root / "mounted" / "1"
    data = home / "..2026_01_01"
    data.mkdir(parents=True)
    for path in (tmp_path / "made" / "mounted" / "1").iterdir():
        path.rename(data / path.name)
        (home / path.name).symlink_to(f"..data/{path.name}")
    (home / "..data").symlink_to(data.name)
    store = Store(str(root))
    assert store.survey().models == {GOOD: ["1"], "mounted": ["1"]}
    assert store.manifest("mounted", "1") == published
    assert (store.fetch("mounted", "1") / "w").read_bytes() == weights.read_bytes()


def test_folders_that_link_within_the_store_are_followed(root, tmp_path):
    draft = replace(builtin_draft("echo"), model="linked")
    Store(str(tmp_path / "made")).publish(draft, {})
    (tmp_path / "made" / "linked").rename(root / ".kept")
    (root / "linked").symlink_to(".kept")
    (root / ".kept" / "1").rename(root / ".one")
    (root / ".kept" / "1").symlink_to(root / ".one")
    store = Store(str(root))
    assert store.survey().models == {GOOD: ["1"], "linked": ["1"]}
    assert store.fetch("linked", "1").is_dir()


def test_a_store_that_is_a_link_itself_is_a_store(root, tmp_path):
    (tmp_path / "link").symlink_to(root)
    store = Store(str(tmp_path / "link"))
    assert store.models() == {GOOD: ["1"]}
    assert store.fetch(GOOD, "1").is_dir()


def test_nothing_is_published_through_a_link_out_of_the_store(root, tmp_path):
    (tmp_path / "outside").mkdir()
    (root / "m").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="out of the store"):
        Store(str(root)).publish(Manifest(model="m", version="1", runtime="noop"), {})
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_bad_version_of_a_remote_store_is_left_out_as_well(tmp_path):
    store = Store(f"memory://{uuid4().hex}", tmp_path / "cache")
    store.publish(Manifest(model="m", version="1", runtime="noop"), {})
    files = fsspec.filesystem("memory")
    root = store.root.removeprefix("memory://")
    files.pipe_file(f"/{root}/m/2/manifest.json", b"{")
    files.pipe_file(f"/{root}/no name/1/manifest.json", b"{}")
    try:
        survey = store.survey()
        assert survey.models == {"m": ["1"]}
        assert {one.name for one in survey.left_out} == {"m/2", "'no name'"}
        assert store.newest("m").manifest.version == "1"
    finally:
        files.store.clear()


def test_files_behind_links_belong_to_a_version(tmp_path):
    folder, beside = tmp_path / "folder", tmp_path / "beside"
    for one in (folder, beside / "deep"):
        one.mkdir(parents=True)
    (beside / "deep" / "a.txt").write_text("a")
    (folder / "linked").symlink_to(beside)
    (folder / "one.txt").symlink_to(beside / "deep" / "a.txt")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("")
    assert list(files_under(folder)) == ["linked/deep/a.txt", "one.txt"]
    assert list(files_under(folder / "linked")) == ["deep/a.txt"]


def _loop(folder):
    (folder / "loop").symlink_to(folder.parent)


@pytest.mark.parametrize(("make", "reason"), [
    (lambda folder: os.mkfifo(folder / "fifo"), "neither a file nor a folder"),
    (lambda folder: (folder / "gone").symlink_to("nowhere"), "a broken link"),
    (lambda folder: (folder / "self").symlink_to("self"), "a broken link"),
    (_loop, "link to a folder that contains it"),
])  # fmt: skip
def test_what_is_no_file_is_named_when_a_version_is_made(tmp_path, make, reason):
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder)
    with pytest.raises(StoreError, match=reason):
        files_under(folder)


def test_a_version_has_so_many_files_at_most(tmp_path):
    for number in range(FILES_MAX + 1):
        (tmp_path / f"{number}").touch()
    with pytest.raises(StoreError, match=f"more than {FILES_MAX} files"):
        files_under(tmp_path)


def test_a_source_that_is_no_file_is_not_waited_for(root, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StoreError, match="not a regular file"):
        Store(str(root)).publish(
            Manifest(model="m", version="1", runtime="noop"), {"w": tmp_path / "fifo"}
        )


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner,
                                                                max_size=3),
    max_leaves=8,
)  # fmt: skip
_KEYS = sorted(json.loads(builtin_draft("echo").to_json()))


@given(st.dictionaries(st.sampled_from([*_KEYS, "code"]), _JSON, max_size=4))
def test_whatever_a_manifest_says_it_is_read_or_refused(changes):
    wire = {**json.loads(builtin_draft("echo").to_json()), **changes}
    with suppress(StoreError):
        assert Manifest.from_json(json.dumps(wire).encode()).model == wire["model"]


_SPEC = st.dictionaries(
    st.sampled_from(["name", "datatype", "shape", "range", "finite", "x"]), _JSON, max_size=5
)


@given(st.fixed_dictionaries({"inputs": st.lists(_SPEC, max_size=2), "outputs": _JSON}))
def test_whatever_a_signature_says_it_is_read_or_refused(signature):
    wire = {**json.loads(builtin_draft("echo").to_json()), "signature": signature}
    with suppress(StoreError):
        assert Manifest.from_json(json.dumps(wire).encode()).model == wire["model"]


@given(st.sampled_from(["limits", "code", "files", "golden"]), st.data())
def test_whatever_a_part_of_a_manifest_says_it_is_read_or_refused(part, data):
    echo = json.loads(builtin_draft("echo").to_json())
    keys = {
        "limits": sorted(echo["limits"]), "code": ["source", "class"], "files": ["a", "b/c"],
        "golden": ["inputs"],
    }[part]  # fmt: skip
    value = data.draw(st.dictionaries(st.sampled_from(keys), _JSON, max_size=4))
    wire = {**echo, part: [value] if part == "golden" else value}
    with suppress(StoreError):
        assert Manifest.from_json(json.dumps(wire).encode()).model == wire["model"]
