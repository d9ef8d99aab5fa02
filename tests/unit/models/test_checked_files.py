"""What was checked is what is loaded: data files of stores that others may write to."""

import hashlib
import os
from pathlib import Path

import pytest
from support.other_user import needs_another_user

from batchfleet.models.cache import FileCache, own_cache
from batchfleet.models.code import ModelCode
from batchfleet.models.code_loading import CodePlace, load_class
from batchfleet.models.manifest import Manifest
from batchfleet.models.store import Store
from batchfleet.wire.errors import StoreError

STRANGER = 65432
WEIGHTS = b"weights" * 1000
MORE = b"more of them"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(WEIGHTS)
    return path


@pytest.fixture
def place(tmp_path, weights):
    """A store with one version, and its folder."""
    store = Store(str(tmp_path / "store"), tmp_path / "cache")
    draft = Manifest(model="m", version="1", runtime="noop")
    more = tmp_path / "more.bin"
    more.write_bytes(MORE)
    store.publish(draft, {"weights.bin": weights, "deep/more.bin": more})
    return store, tmp_path / "store" / "m" / "1"


def open_to_others(path):
    path.chmod(path.stat().st_mode | 0o002)


def test_files_that_nobody_else_may_write_are_used_where_they_are(place, tmp_path):
    store, folder = place
    assert store.fetch("m", "1") == folder
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("what", ["", "weights.bin", "deep", "deep/more.bin", "manifest.json"])
def test_files_that_others_may_write_are_copied_while_they_are_checked(place, tmp_path, what):
    """X14, T3 (swap): between the check and the load the file in the store becomes another."""
    store, folder = place
    open_to_others(folder / what)
    found = store.fetch("m", "1")
    assert found.is_relative_to(tmp_path / "cache")
    (folder / "weights.bin").write_bytes(b"poison")
    (folder / "deep" / "more.bin").unlink()
    assert (found / "weights.bin").read_bytes() == WEIGHTS
    assert (found / "deep" / "more.bin").read_bytes() == MORE
    assert (found / "weights.bin").stat().st_mode & 0o222 == 0
    other = Store(store.root, tmp_path / "other")
    with pytest.raises(StoreError, match=r"'weights.bin' differs from its manifest"):
        other.fetch("m", "1")
    (folder / "weights.bin").write_bytes(WEIGHTS)
    with pytest.raises(StoreError, match=r"'deep/more.bin' of its manifest is missing"):
        other.fetch("m", "1")


@needs_another_user
def test_a_hard_link_to_the_file_of_somebody_else_is_copied(place, tmp_path):
    """X14, T3 (hard link): its owner may change it at any time."""
    store, folder = place
    theirs = tmp_path / "theirs"
    theirs.write_bytes(WEIGHTS)
    os.chown(theirs, STRANGER, STRANGER)
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").hardlink_to(theirs)
    found = store.fetch("m", "1")
    assert found.is_relative_to(tmp_path / "cache")
    theirs.write_bytes(b"poison")
    assert (found / "weights.bin").read_bytes() == WEIGHTS
    with pytest.raises(StoreError, match="differs from its manifest"):
        Store(store.root, tmp_path / "other").fetch("m", "1")


def test_a_version_folder_that_is_a_link_counts_with_what_it_leads_to(place, tmp_path):
    """X14, T3 (link): within the store it is followed, and the folder behind it looked at."""
    store, folder = place
    hidden = folder.parent / ".1"
    folder.rename(hidden)
    folder.symlink_to(".1")
    assert store.fetch("m", "1") == folder
    open_to_others(hidden)
    assert store.fetch("m", "1").is_relative_to(tmp_path / "cache")
    hidden.rename(tmp_path / "out")
    folder.unlink()
    folder.symlink_to(tmp_path / "out")
    with pytest.raises(StoreError, match="out of the store"):
        store.fetch("m", "1")


def test_a_link_out_of_the_store_is_refused_where_others_may_write_too(place, tmp_path, weights):
    """X14, T3: the right content does not make it a file of the store."""
    store, folder = place
    open_to_others(folder)
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(weights)
    with pytest.raises(StoreError, match="out of the store"):
        store.fetch("m", "1")


def test_a_link_that_changes_while_it_is_followed_is_refused(place, tmp_path, monkeypatch):
    """X14 (link): between the question where a file lies and its opening."""
    store, folder = place
    open_to_others(folder)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "more.bin").write_bytes(MORE)
    real_open = os.open

    def swapped(path, *arguments, **options):
        if Path(path) == folder / "deep" / "more.bin" and not (folder / "deep").is_symlink():
            (folder / "deep").rename(folder / "away")
            (folder / "deep").symlink_to(tmp_path / "deep")
        return real_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(StoreError, match="was changed while it was being opened"):
        store.fetch("m", "1")


def test_a_manifest_is_read_once_for_all_that_is_done_by_it(place, weights, tmp_path):
    """X14 (swap): files are checked by the manifest that code and lineage were judged by."""
    store, folder = place
    manifest = store.manifest("m", "1")
    weights.write_bytes(b"poison")
    other = Store(str(tmp_path / "other"))
    draft = Manifest(model="m", version="1", runtime="noop")
    other.publish(draft, {"weights.bin": weights, "deep/more.bin": weights})
    for name in ("manifest.json", "weights.bin", "deep/more.bin"):
        (folder / name).write_bytes((tmp_path / "other" / "m" / "1" / name).read_bytes())
    assert store.fetch("m", "1") == folder
    with pytest.raises(StoreError, match=r"weights.bin.* differs|differs.*weights.bin"):
        store.fetch_files(manifest)


@pytest.mark.parametrize("what", ["", "files", "versions", "versions/m", "versions/m/*"])
def test_a_cache_that_others_may_write_is_not_used(place, tmp_path, what):
    """X11, X14 (cache): nor one in which a single folder is open."""
    store, folder = place
    open_to_others(folder)
    store.fetch("m", "1")
    cache = tmp_path / "cache"
    (opened,) = cache.glob(what) if what else [cache]
    open_to_others(opened)
    with pytest.raises(StoreError, match="the cache cannot be there: every user can write"):
        store.fetch("m", "1")


def test_a_copy_that_others_may_write_is_recreated(place, tmp_path):
    """X11, X14 (cache): whatever its content is at the moment."""
    store, folder = place
    open_to_others(folder)
    found = store.fetch("m", "1")
    copy = tmp_path / "cache" / "files" / hashlib.sha256(WEIGHTS).hexdigest()
    open_to_others(copy)
    before = copy.stat().st_ino
    assert store.fetch("m", "1") == found
    assert copy.stat().st_ino != before
    assert copy.samefile(found / "weights.bin")
    assert copy.stat().st_mode & 0o022 == 0


@needs_another_user
@pytest.mark.parametrize("way", ["folder", "link"])
def test_the_cache_of_somebody_else_is_not_used(tmp_path, way):
    """X11, T18: by its own folder, or by a link to it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    os.chown(theirs, STRANGER, STRANGER)
    link = tmp_path / "link"
    link.symlink_to(theirs)
    with pytest.raises(StoreError, match=f"belongs to user {STRANGER}"):
        own_cache(theirs if way == "folder" else link)
    with pytest.raises(StoreError, match=f"belongs to user {STRANGER}"):
        FileCache(theirs).fill(Manifest(model="m", version="1", runtime="noop"), "d", None)


def test_a_new_cache_is_private(tmp_path):
    """X11: whatever the mask of this process."""
    mask = os.umask(0)
    try:
        folder = own_cache(tmp_path / "cache")
    finally:
        os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("what", ["", "wheels", "wheels/*"])
def test_a_wheel_runs_from_no_cache_that_others_may_write(tmp_path, what):
    """X1, X11 (wheel): its copy is what runs."""
    wheel = tmp_path / "ours-1-py3-none-any.whl"
    wheel.write_bytes(b"no zip at all")
    store, code = Store(str(tmp_path / "store")), ModelCode(wheel.name, "ours_no_such:Shout")
    draft = Manifest(model="m", version="1", runtime="python", code=code)
    manifest = store.publish(draft, {wheel.name: wheel})
    cache = tmp_path / "cache"
    folder = own_cache(cache / "wheels" / manifest.files[wheel.name].sha256)
    (folder / wheel.name).write_bytes(b"no zip at all")
    (opened,) = cache.glob(what) if what else [cache]
    open_to_others(opened)
    with pytest.raises(StoreError, match="the cache cannot be there"):
        load_class(manifest, CodePlace(folder=store.fetch("m", "1"), cache=cache))
