import threading
from dataclasses import replace
from uuid import uuid4

import fsspec
import pytest

from batchfleet.models.files import FileEntry
from batchfleet.models.listing import version_order
from batchfleet.models.manifest import MANIFEST_BYTES_MAX, Manifest
from batchfleet.models.store import Store
from batchfleet.wire.errors import CallerError, StoreError

DRAFT = Manifest(model="m", version="1", runtime="noop")


@pytest.fixture
def memory(tmp_path):
    """A remote root of its own, and its folder in fsspec's memory."""
    root = f"memory://{uuid4().hex}"
    yield Store(root, tmp_path / "cache")
    fsspec.filesystem("memory").store.clear()


def publish(store, weights, version="1"):
    return store.publish(replace(DRAFT, version=version), {"sub/weights.bin": weights})


def test_what_is_published_can_be_fetched(store, weights):
    published = publish(store, weights)
    assert store.manifest("m", "1") == published
    assert published.files["sub/weights.bin"].size_bytes == 1000
    assert len(published.code_sha256) == 64
    folder = store.fetch("m", "1")
    assert (folder / "sub" / "weights.bin").read_bytes() == weights.read_bytes()


def test_file_urls_and_plain_paths_are_one_store(store, weights):
    publish(store, weights)
    assert Store(f"file://{store.root}").fetch("m", "1") == store.fetch("m", "1")


def test_publishing_the_same_again_changes_nothing(store, weights):
    first = publish(store, weights)
    before = (store.fetch("m", "1") / "manifest.json").stat().st_mtime_ns
    assert publish(store, weights) == first
    assert (store.fetch("m", "1") / "manifest.json").stat().st_mtime_ns == before


def test_a_version_never_changes(store, weights):
    first = publish(store, weights)
    weights.write_bytes(b"other")
    with pytest.raises(StoreError, match="publish under a new version"):
        publish(store, weights)
    assert store.manifest("m", "1") == first
    publish(store, weights, "2")
    assert store.models() == {"m": ["1", "2"]}


def test_racing_publishers_leave_one_whole_version(store, weights, tmp_path):
    other = tmp_path / "other.bin"
    other.write_bytes(b"other")
    barrier = threading.Barrier(2, timeout=10)
    refused = []

    def wait_at_start(_name, done, _total):
        if done == 0:
            barrier.wait()

    def race(source):
        try:
            store.publish(DRAFT, {"weights.bin": source}, wait_at_start)
        except StoreError as error:
            refused.append(error)

    threads = [threading.Thread(target=race, args=(source,)) for source in (weights, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(refused) == 1
    assert store.fetch("m", "1").is_dir()
    assert [path.name for path in store.fetch("m", "1").parent.iterdir()] == ["1"]


def test_a_source_that_changes_while_it_is_published_leaves_no_version(store, weights):
    def change(_name, done, _total):
        if done == 0:
            weights.write_bytes(b"x" * 1000)

    with pytest.raises(StoreError, match="differs from its manifest"):
        store.publish(DRAFT, {"weights.bin": weights}, change)
    assert store.models() == {}


def test_progress_counts_to_the_end(store, weights):
    seen = []
    store.publish(DRAFT, {"w": weights}, lambda *report: seen.append(report))
    assert seen == [("w", 0, 1000), ("w", 1000, 1000)]


@pytest.mark.parametrize("content", [b"short", b"x" * 1000, b"x" * 2000])
def test_a_changed_file_is_named(store, weights, content):
    publish(store, weights)
    (store.fetch("m", "1") / "sub" / "weights.bin").write_bytes(content)
    with pytest.raises(StoreError, match=r"sub/weights\.bin"):
        store.fetch("m", "1")


def test_a_missing_file_is_named(store, weights):
    publish(store, weights)
    (store.fetch("m", "1") / "sub" / "weights.bin").unlink()
    with pytest.raises(StoreError, match=r"sub/weights\.bin"):
        store.fetch("m", "1")


@pytest.mark.parametrize("linked", ["sub", "sub/weights.bin", "manifest.json"])
def test_links_out_of_the_store_are_refused_even_to_the_right_content(
    store, weights, tmp_path, linked
):
    publish(store, weights)
    path = store.fetch("m", "1") / linked
    moved = tmp_path / "moved"
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(StoreError, match="symbolic link out of the store"):
        store.fetch("m", "1")


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "manifest.json"])
def test_hostile_names_are_not_published(store, weights, tmp_path, name):
    with pytest.raises(StoreError, match="not a plain relative path"):
        store.publish(DRAFT, {name: weights})
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["..", "a/b", "", "a\0b", ".hidden"])
def test_only_names_of_the_contract_reach_the_storage(store, name):
    for call in (store.manifest, store.fetch):
        with pytest.raises(CallerError):
            call(name, "1")
        with pytest.raises(CallerError):
            call("m", name)
    with pytest.raises(CallerError):
        store.newest(name)


def test_versions_are_in_natural_order(store):
    for version in ("10", "9", "2", "1.10", "1.9"):
        store.publish(replace(DRAFT, version=version), {})
    assert store.models() == {"m": ["1.9", "1.10", "2", "9", "10"]}
    assert store.newest("m").manifest.version == "10"


def test_version_order_tells_any_two_names_apart():
    assert sorted(["v1", "01", "1", "a", "1a"], key=version_order) == ["01", "1", "1a", "a", "v1"]


def test_a_version_without_manifest_does_not_exist(store, tmp_path):
    (tmp_path / "root" / "m" / "1").mkdir(parents=True)
    assert store.models() == {}
    with pytest.raises(StoreError, match=r"m/1 is left out: it has no manifest\.json"):
        store.newest("m")
    with pytest.raises(StoreError, match="has no model 'other'"):
        store.newest("other")


def test_leftovers_in_the_way_of_a_version_are_named(store, weights, tmp_path):
    leftover = tmp_path / "root" / "m" / "1" / "x"
    leftover.mkdir(parents=True)
    with pytest.raises(StoreError, match="delete it"):
        publish(store, weights)


def test_an_unknown_version_is_told_from_what_there_is(store, weights):
    publish(store, weights)
    with pytest.raises(StoreError, match=r"no version m/2; it has: m/1"):
        store.fetch("m", "2")


def test_an_empty_or_absent_root_has_no_models(store):
    assert store.models() == {}


def test_a_manifest_must_be_that_of_its_folder(store, weights):
    publish(store, weights)
    folder = store.fetch("m", "1")
    folder.rename(folder.with_name("2"))
    with pytest.raises(StoreError, match="is that of m/1"):
        store.manifest("m", "2")


def test_a_huge_manifest_is_not_read_to_its_end(store, weights):
    publish(store, weights)
    with (store.fetch("m", "1") / "manifest.json").open("ab") as file:
        file.truncate(MANIFEST_BYTES_MAX * 1000)
    with pytest.raises(StoreError, match="more than 1000000 bytes"):
        store.manifest("m", "1")


def test_unknown_runtimes_are_refused_with_the_known_ones(store):
    with pytest.raises(StoreError, match="echo, noop"):
        store.publish(replace(DRAFT, runtime="ecko"), {})


def test_an_unknown_kind_of_root_is_refused():
    with pytest.raises(StoreError, match="nosuch"):
        Store("nosuch://bucket/models")


def test_a_remote_version_is_copied_whole(memory, weights):
    published = publish(memory, weights)
    assert publish(memory, weights) == published
    folder = memory.fetch("m", "1")
    assert (folder / "sub" / "weights.bin").read_bytes() == weights.read_bytes()
    assert memory.models() == {"m": ["1"]}


def test_a_remote_version_never_changes(memory, weights):
    publish(memory, weights)
    weights.write_bytes(b"other")
    with pytest.raises(StoreError, match="publish under a new version"):
        publish(memory, weights)


def test_only_missing_and_damaged_files_are_fetched(memory, weights, tmp_path):
    publish(memory, weights)
    other = tmp_path / "other.bin"
    other.write_bytes(b"other")
    memory.publish(replace(DRAFT, version="2"), {"old": weights, "new": other})
    first = memory.fetch("m", "1") / "sub" / "weights.bin"
    files = fsspec.filesystem("memory")
    root = memory.root.removeprefix("memory://")
    files.rm_file(f"/{root}/m/2/old")
    second = memory.fetch("m", "2")
    assert (second / "old").samefile(first)
    (second / "new").chmod(0o600)  # copies in the cache are read-only
    (second / "new").write_bytes(b"damaged")
    assert (memory.fetch("m", "2") / "new").read_bytes() == b"other"


def test_a_changed_remote_file_is_named_and_not_kept(memory, weights, tmp_path):
    published = publish(memory, weights)
    root = memory.root.removeprefix("memory://")
    fsspec.filesystem("memory").pipe_file(f"/{root}/m/1/sub/weights.bin", b"x" * 5000)
    with pytest.raises(StoreError, match=r"sub/weights\.bin"):
        memory.fetch("m", "1")
    kept = tmp_path / "cache" / "files"
    assert not list(kept.iterdir())
    assert published.files["sub/weights.bin"] != FileEntry("", 0)
