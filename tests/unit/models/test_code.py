"""The runtime `python`: where the class is, whose code may run, and how it is imported."""

import hashlib
import sys
import zipfile
from dataclasses import replace

import pytest

from batchfleet.models.code import ModelCode, read_code
from batchfleet.models.code_loading import CodePlace, load_class
from batchfleet.models.code_rule import CodeRule, check_allowed
from batchfleet.models.manifest import Manifest
from batchfleet.models.model import Model
from batchfleet.wire.errors import StoreError

SHOUT = """\
from batchfleet import Model

class Shout(Model):
    def predict(self, rows, context):
        return [{"text": row["text"].upper()} for row in rows]

class NoModel:
    pass
"""
FILE = ModelCode("model.py", "Shout")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(SHOUT)
    return path


@pytest.fixture
def publish(store, source):
    """Publish a version of a file's class, and say where its files are."""

    def publish(code=FILE, sources=None, version="1"):
        draft = Manifest(model="m", version=version, runtime="python", code=code)
        manifest = store.publish(draft, {"model.py": source} if sources is None else sources)
        return manifest, store.fetch("m", version)

    return publish


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch):
    """What a test imports is gone after it."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "meta_path", sys.meta_path[:])
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]


def place(folder, tmp_path, **more):
    return CodePlace(folder=folder, cache=tmp_path / "cache", **more)


@pytest.mark.parametrize(
    ("source", "class_path", "kind", "module"),
    [
        ("model.py", "Shout", "file", "model"),
        ("ours-1.2-py3-none-any.whl", "ours.a:Shout", "wheel", "ours.a"),
        ("ours==1.2+cpu", "ours:Shout", "distribution", "ours"),
    ],
)
def test_code_comes_in_three_forms(source, class_path, kind, module):
    code = read_code({"source": source, "class": class_path})
    assert (code.kind.value, code.module, code.class_name) == (kind, module, "Shout")
    assert read_code(code.to_wire()) == code


@pytest.mark.parametrize(
    "wire",
    [
        None,
        {"source": "model.py"},
        {"source": "model.py", "class": 1},
        {"source": "../model.py", "class": "Shout"},
        {"source": "model.py", "class": "os:system"},
        {"source": "ours==1", "class": "Shout"},
        {"source": "ours", "class": "ours:Shout"},
        {"source": "a/model.py", "class": "Shout"},
        {"source": "x.whl", "class": "a..b:C"},
    ],
)
def test_other_forms_are_refused(wire):
    with pytest.raises(ValueError, match=r"must|is no"):
        read_code(wire)


def test_the_runtime_python_and_code_belong_together():
    with_code = Manifest(model="m", version="1", runtime="python", code=FILE).to_json()
    assert Manifest.from_json(with_code).code == FILE
    for raw in (
        Manifest(model="m", version="1", runtime="python").to_json(),
        Manifest(model="m", version="1", runtime="echo", code=FILE).to_json(),
    ):
        with pytest.raises(StoreError, match="runtime 'python'"):
            Manifest.from_json(raw)


def test_a_class_is_imported_from_a_file_of_the_version(publish, tmp_path):
    manifest, folder = publish()
    found = load_class(manifest, place(folder, tmp_path))
    assert issubclass(found, Model)
    assert found().predict([{"text": "a"}], None) == [{"text": "A"}]
    assert not (folder / "__pycache__").exists()


def test_two_versions_live_side_by_side(publish, source, tmp_path):
    first = load_class(publish()[0], place(publish()[1], tmp_path))
    source.write_text(SHOUT.replace("upper", "lower"))
    manifest, folder = publish(version="2")
    second = load_class(manifest, place(folder, tmp_path))
    answers = [kind().predict([{"text": "Ab"}], None)[0]["text"] for kind in (first, second)]
    assert answers == ["AB", "ab"]


def test_a_file_that_was_changed_after_publishing_does_not_run(publish, tmp_path):
    manifest, folder = publish()
    (folder / "model.py").write_text("raise SystemExit('was run')\n")
    with pytest.raises(StoreError, match="differs from its manifest"):
        load_class(manifest, place(folder, tmp_path))


def test_byte_code_in_the_store_is_not_run(publish, tmp_path):
    manifest, folder = publish()
    cached = folder / "__pycache__" / f"model.{sys.implementation.cache_tag}.pyc"
    cached.parent.mkdir()
    cached.write_bytes(b"not byte code")
    assert load_class(manifest, place(folder, tmp_path)).__name__ == "Shout"


def test_files_of_a_version_are_one_package(publish, source, tmp_path):
    helper = tmp_path / "words.py"
    helper.write_text("def loud(text):\n    return text + '!'\n")
    source.write_text(
        "from .words import loud\n" + SHOUT.replace('row["text"].upper()', 'loud("a")')
    )
    files = {"model.py": source, "words.py": helper}
    manifest, folder = publish(sources=files)
    found = load_class(manifest, place(folder, tmp_path))
    assert found().predict([{}], None) == [{"text": "a!"}]

    source.write_text(source.read_text().replace(".words", "words"))
    manifest, folder = publish(sources=files, version="2")
    with pytest.raises(StoreError, match=r"from \. import words"):
        load_class(manifest, place(folder, tmp_path))

    source.write_text(source.read_text().replace("words import", "no_such_package import"))
    manifest, folder = publish(sources=files, version="3")
    with pytest.raises(StoreError, match=r"needs 'no_such_package'.*pip install"):
        load_class(manifest, place(folder, tmp_path))


def test_traces_name_the_file_that_is_edited(publish, source, tmp_path):
    manifest, folder = publish()
    edited = load_class(manifest, place(folder, tmp_path, shown_as=source.parent))
    assert edited.predict.__code__.co_filename == str(source)
    source.write_text(SHOUT + "\n")
    stale = load_class(manifest, place(folder, tmp_path, shown_as=source.parent))
    assert stale.predict.__code__.co_filename == str(folder / "model.py")


@pytest.mark.parametrize(
    ("name", "reason"), [("Absent", "has no class"), ("NoModel", "not derived")]
)
def test_what_is_no_model_is_refused(publish, tmp_path, name, reason):
    manifest, folder = publish(ModelCode("model.py", name))
    with pytest.raises(StoreError, match=reason):
        load_class(manifest, place(folder, tmp_path))


def wheel_with(path, text):
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("ours_of_test/__init__.py", text)
    return path


def test_a_wheel_runs_from_a_copy_that_bears_its_digest(publish, tmp_path):
    name = "ours_of_test-1-py3-none-any.whl"
    code = ModelCode(name, "ours_of_test:Shout")
    manifest, folder = publish(code, {name: wheel_with(tmp_path / "a.whl", SHOUT)})
    found = load_class(manifest, place(folder, tmp_path))
    assert found().predict([{"text": "a"}], None) == [{"text": "A"}]
    assert manifest.files[name].sha256 in sys.modules["ours_of_test"].__file__

    other, folder = publish(code, {name: wheel_with(tmp_path / "b.whl", SHOUT + "\n")}, "2")
    with pytest.raises(StoreError, match="already loaded another package 'ours_of_test'"):
        load_class(other, place(folder, tmp_path))


@pytest.mark.parametrize(
    "class_path", ["ours_of_test:Shout", "ours_of_wheel.inner:Shout", "ours_of_wheel.none:Shout"]
)
def test_a_wheel_is_no_leave_for_what_is_installed_beside_it(
    publish, tmp_path, installed, class_path
):
    """X12, X1 (wheel): a manifest that names an allowed wheel, and a module that is not in it."""
    path, name = tmp_path / "a.whl", "ours_of_wheel-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("ours_of_wheel/inner.py", SHOUT)
    manifest, folder = publish(ModelCode(name, class_path), {name: path})
    with pytest.raises(StoreError, match="has no package"):
        load_class(manifest, place(folder, tmp_path))
    assert not installed.exists()


@pytest.mark.parametrize(
    ("source", "class_path", "reason"),
    [
        ("no-such-thing==1", "a:B", "pip install 'no-such-thing==1'"),
        ("pytest==0.1", "pytest:B", "is installed"),
        ("pytest=={}", "subprocess:Popen", "not part of pytest"),
        ("pytest=={}", "pytest:Item", "not derived from batchfleet.Model"),
    ],
)
def test_a_distribution_must_be_installed_in_that_version(
    publish, tmp_path, source, class_path, reason
):
    code = ModelCode(source.format(pytest.__version__), class_path)
    manifest, folder = publish(code, {})
    with pytest.raises(StoreError, match=reason):
        load_class(manifest, place(folder, tmp_path))


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution that offers one of its two classes as a model; importing it leaves a mark."""
    folder = tmp_path / "site"
    info = folder / "of_test_Ours-1.dist-info"
    info.mkdir(parents=True)
    mark = tmp_path / "imported"
    (folder / "ours_of_test.py").write_text(f"open({str(mark)!r}, 'w').close()\n{SHOUT}")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: of_test.Ours\nVersion: 1\n")
    (info / "top_level.txt").write_text("ours_of_test\n")
    (info / "entry_points.txt").write_text(
        "[batchfleet.models]\nany = ours_of_test:Shout\n[console_scripts]\nno = ours_of_test:No\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    return mark


def load_installed(publish, tmp_path, class_path, rule, source="of-test-ours==1"):
    version = class_path.partition(":")[2]
    manifest, folder = publish(ModelCode(source, class_path), {}, version)
    check_allowed(CodeRule.parse(rule), manifest, foreign="somebody else's")
    return load_class(manifest, place(folder, tmp_path))


@pytest.mark.parametrize("rule", ["", "none", "own", "digest:" + "0" * 64])
def test_a_class_that_a_distribution_offers_as_a_model_needs_no_leave(
    publish, tmp_path, installed, rule
):
    found = load_installed(publish, tmp_path, "ours_of_test:Shout", rule)
    assert found().predict([{"text": "a"}], None) == [{"text": "A"}]
    assert installed.exists()


@pytest.mark.parametrize("rule", ["", "own", "dist:another"])
@pytest.mark.parametrize(
    ("source", "class_path"),
    [
        ("of-test-ours==1", "ours_of_test:NoModel"),
        ("of-test-ours==1", "ours_of_test:No"),
        ("of-test-ours==1", "ours_of_test.inner:Shout"),
        (f"pytest=={pytest.__version__}", "ours_of_test:Shout"),
        (f"pytest=={pytest.__version__}", "pytest:console_main"),
    ],
)
def test_no_other_module_of_a_distribution_is_imported_unasked(
    publish, tmp_path, installed, source, class_path, rule
):
    """X12, T17: entry points of our group, or a list that the operator sets."""
    name = source.partition("==")[0]
    with pytest.raises(StoreError, match=f"--allow-code dist:{name}"):
        load_installed(publish, tmp_path, class_path, rule, source)
    assert not installed.exists()


@pytest.mark.parametrize("rule", ["dist:of-test-ours", "own,dist:OF_Test.Ours", "any"])
def test_an_operator_allows_a_distribution_by_its_name(publish, tmp_path, installed, rule):
    """X12: whatever the spelling; the class must be a model all the same."""
    assert load_installed(publish, tmp_path, "ours_of_test:Shout", rule)
    with pytest.raises(StoreError, match="not derived from"):
        load_installed(publish, tmp_path, "ours_of_test:NoModel", rule)


def test_which_class_is_named_is_part_of_the_lineage(publish):
    """X1 (manifest): whatever digest of it is written beside it."""
    manifest, _ = publish(ModelCode("ours==1", "ours:Shout"), {})
    assert manifest.lineage == replace(manifest, code_sha256="").lineage
    for code in (ModelCode("ours==1", "ours:Other"), ModelCode("ours==2", "ours:Shout")):
        assert manifest.lineage != replace(manifest, code=code).lineage
    with pytest.raises(StoreError, match="pip install ours"):
        check_allowed(CodeRule(), manifest, foreign="")


@pytest.mark.parametrize("text", ["none", "own", "own,dist:a-b", "any"])
def test_a_rule_is_told_as_it_is_written(text):
    assert str(CodeRule.parse(text)) == text


@pytest.mark.parametrize(
    ("rule", "foreign", "allowed"),
    [
        ("", "", False),
        ("none", "", False),
        ("any", "theirs", True),
        ("own", "", True),
        ("own", "it belongs to user 7", False),
        ("digest:{sha256}", "theirs", True),
        ("own,digest:{sha256}", "theirs", True),
        ("digest:" + "0" * 64, "", False),
    ],
)
def test_code_of_the_store_runs_where_it_is_allowed(publish, source, rule, foreign, allowed):
    manifest, _ = publish()
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    parsed = CodeRule.parse(rule.format(sha256=sha256))
    if allowed:
        check_allowed(parsed, manifest, foreign)
        return
    with pytest.raises(StoreError, match=f"--allow-code digest:{sha256}") as caught:
        check_allowed(parsed, manifest, foreign)
    assert foreign in str(caught.value)


def test_every_source_file_must_be_listed(publish, source, tmp_path):
    helper = tmp_path / "words.py"
    helper.write_text("x = 1\n")
    manifest, _ = publish(sources={"model.py": source, "words.py": helper})
    listed = CodeRule.parse(f"digest:{manifest.files['model.py'].sha256}")
    with pytest.raises(StoreError, match=r"its code \(words.py\)"):
        check_allowed(listed, manifest, "")
