"""Which program a worker starts for a version: what is in Redis or in a store chooses none."""

import os
from dataclasses import replace

import pytest
from support.other_user import needs_another_user
from support.traps import Trap, forge_built

from batchfleet.consumer.worker.interpreters import Interpreters
from batchfleet.models.importing import builtin_draft
from batchfleet.models.store import Store
from batchfleet.service.settings import Settings
from batchfleet.wire.signature import Signature, TensorSpec

STRANGER = 65432
LOCKED = "env:" + "5" * 64


class Place:
    """A store, a cache and a trap, all of them this user's alone."""

    def __init__(self, folder):
        self.folder = folder
        self.store = Store(str(folder / "store"))
        self.cache = folder / "cache"
        self.trap = Trap(folder / "environment", folder / "sprung")

    def publish(self, environment="", **more):
        """The record of a version of a built-in runtime."""
        draft = replace(builtin_draft("noop"), model="m", environment=environment, **more)
        return self.store.publish(draft, {}).record()

    def find(self, record, allowed="", **more):
        """Why the version is refused; the mark tells whether the trap was sprung."""
        settings = Settings(
            store=self.store.root, cache=str(self.cache), allow_environments=allowed, **more
        )
        python, reason = Interpreters(settings, {"PATH": os.defpath}).find("m", record)
        assert python is None
        return reason


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_an_environment_that_the_operator_names_is_run(place):
    """The control of all others: the trap works."""
    record = place.publish(str(place.trap.folder))
    assert "cannot run a device process" in place.find(record, f"built,{place.trap.folder}/")
    assert place.trap.was_sprung


def test_a_version_without_an_environment_needs_no_look_at_the_store(place):
    assert place.find(replace(place.publish(), lineage="0" * 16)) == ""


@pytest.mark.parametrize("allowed", ["", "built", "none", "/opt/other"])
def test_a_record_chooses_no_interpreter(place, allowed):
    """X1, T18 (record): a folder that is named in Redis alone."""
    record = replace(place.publish(), environment=str(place.trap.folder))
    reason = place.find(record, allowed)
    assert f"allow it with --allow-environments {place.trap.folder}" in reason
    assert not place.trap.was_sprung


@pytest.mark.parametrize("runtime", ["echo", "noop"])
def test_a_manifest_chooses_no_interpreter(place, runtime):
    """X1, T18 (manifest): a folder that the store names, for a built-in runtime."""
    record = place.publish(str(place.trap.folder), runtime=runtime)
    assert "is not allowed on this worker" in place.find(record)
    assert not place.trap.was_sprung


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lineage": "0" * 16}, "lineage"),
        ({"lineage": ""}, "lineage"),
        ({"runtime": "echo"}, "runtime 'noop', deployed 'echo'"),
        ({"device": "cuda"}, "device 'any', deployed 'cuda'"),
        ({"signature": Signature(inputs=(TensorSpec(name="x", datatype="FP32"),))}, "signature"),
    ],
)
def test_a_record_that_is_not_of_the_manifest_starts_nothing(place, change, told):
    """X1 (record): the operator allowed the environment, and this is not what he deployed."""
    folder = str(place.trap.folder)
    reason = place.find(replace(place.publish(folder), **change), folder)
    assert "is not what was deployed" in reason
    assert told in reason
    assert not place.trap.was_sprung


@pytest.mark.parametrize("published", ["", LOCKED])
def test_a_record_puts_no_version_into_an_allowed_environment(place, published):
    """X1 (record): of an environment that the operator allowed for other versions."""
    record = replace(place.publish(published), environment=str(place.trap.folder))
    assert "deployed" in place.find(record, f"built,{place.trap.folder}")
    assert not place.trap.was_sprung


def test_a_way_around_the_name_is_another_name(place):
    """X1 (manifest): only the folder that the operator wrote is that folder."""
    other = Trap(place.folder / "other", place.folder / "other-sprung")
    for name in (f"{place.trap.folder}/../other", f"{place.trap.folder}/..//environment"):
        record = place.publish(name, version=str(len(name)))
        assert "is not allowed" in place.find(record, str(place.trap.folder))
    assert not other.was_sprung
    assert not place.trap.was_sprung


def test_an_environment_that_others_may_write_is_not_run(place):
    """X1, X11 (link): the folder, anything in it, or what a link of it leads to."""
    record = place.publish(str(place.trap.folder))
    module = place.trap.folder / "lib" / "module.py"
    module.parent.mkdir()
    module.write_text("")
    for path in (place.trap.python, place.trap.folder, module, module.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o002)
        reason = place.find(record, str(place.trap.folder))
        assert f"every user can write to {path}" in reason
        path.chmod(mode)
    elsewhere = Trap(place.folder / "elsewhere", place.trap.mark)
    elsewhere.folder.chmod(0o777)
    place.trap.python.unlink()
    place.trap.python.symlink_to(elsewhere.python)
    assert f"every user can write to {elsewhere.folder}" in place.find(
        record, str(place.trap.folder)
    )
    assert not place.trap.was_sprung


def test_the_library_of_an_environment_counts_as_part_of_it(place):
    """X1 (link): `pyvenv.cfg` may lead to another Python's folder."""
    home = place.folder / "home"
    home.mkdir()
    home.chmod(0o777)
    (place.trap.folder / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3\n")
    record = place.publish(str(place.trap.folder))
    assert f"every user can write to {home}" in place.find(record, str(place.trap.folder))
    assert not place.trap.was_sprung


def test_what_was_forged_in_a_cache_that_others_may_write_is_not_run(place):
    """X1, X11 (cache): a stamp and an interpreter in a world-writable `--cache`."""
    trap = forge_built(place.cache, LOCKED, place.folder / "forged")
    record = place.publish(LOCKED)
    place.cache.chmod(0o777)
    assert f"every user can write to {place.cache}" in place.find(record)
    assert not trap.was_sprung
    place.cache.chmod(0o700)
    assert "cannot run a device process" in place.find(record)
    assert trap.was_sprung


def test_a_cache_that_is_a_link_to_such_a_folder_is_none_either(place):
    """X11 (link): sibling of the world-writable one."""
    real = place.folder / "real"
    trap = forge_built(real, LOCKED, place.folder / "forged")
    real.chmod(0o777)
    place.cache.symlink_to(real)
    assert f"every user can write to {real}" in place.find(place.publish(LOCKED))
    assert not trap.was_sprung


@needs_another_user
@pytest.mark.parametrize("what", ["", "environments", "environments/*", "environments/*/bin/*"])
def test_nor_is_what_belongs_to_another_user(place, what):
    """X1, X11, T18 (cache): the cache of somebody else, or one file of his in it."""
    trap = forge_built(place.cache, LOCKED, place.folder / "forged")
    for path in place.cache.glob(what) if what else [place.cache]:
        os.chown(path, STRANGER, STRANGER)
    assert f"belongs to user {STRANGER}" in place.find(place.publish(LOCKED))
    assert not trap.was_sprung


def test_a_store_that_others_may_write_says_nothing_of_an_environment(place):
    """X1 (manifest): unless the operator allowed the store though others may write to it."""
    record = place.publish(str(place.trap.folder))
    (place.folder / "store").chmod(0o777)
    allowed = str(place.trap.folder)
    assert "shared_store" in place.find(record, allowed)
    assert not place.trap.was_sprung
    assert "cannot run" in place.find(record, allowed, shared_store=place.store.root)


def test_a_fit_interpreter_is_asked_for_again_only_by_versions_that_agree(place):
    """X1 (record): what was found fit for one version lets no other record pass."""
    place.trap.python.write_text("#!/bin/sh\nexit 0\n")
    folder = str(place.trap.folder)
    settings = Settings(store=place.store.root, allow_environments=folder)
    interpreters = Interpreters(settings, {})
    record = place.publish(folder)
    assert interpreters.find("m", record) == (place.trap.python, "")
    assert interpreters.find("m", record) == (place.trap.python, "")
    python, reason = interpreters.find("m", replace(record, lineage="1" * 16))
    assert python is None
    assert "is not what was deployed" in reason


def test_an_interpreter_is_asked_without_our_secrets(place, monkeypatch):
    """X2, T18: the probe of an environment runs its code as well."""
    monkeypatch.setenv("BATCHFLEET_REDIS_URL", "redis://:hidden@host")
    place.find(place.publish(str(place.trap.folder)), str(place.trap.folder))
    assert "PATH=" in place.trap.mark.read_text()
    assert "hidden" not in place.trap.mark.read_text()
