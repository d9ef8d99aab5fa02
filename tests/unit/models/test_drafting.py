"""From a `model.py` to the draft of a version, without running it."""

import hashlib
import os

import pytest

from batchfleet.models.drafting import DraftError, PublishOptions, draft_of_file
from batchfleet.wire.deployment import Limits

NAMED = PublishOptions(model="m", version="1")
PREDICT = "    def predict(self, rows, context): ...\n"


@pytest.fixture
def draft(tmp_path):
    def draft(text, wishes=NAMED):
        path = tmp_path / "model.py"
        path.write_text(text.replace("    pass\n", PREDICT))
        return draft_of_file(path, wishes)

    return draft


def test_a_class_alone_is_enough(draft):
    manifest, sources = draft("import batchfleet\nclass Shout(batchfleet.Model):\n    pass\n")
    assert manifest.code.class_name == "Shout"
    assert manifest.limits == Limits()
    assert manifest.signature.inputs == ()
    assert [*sources] == ["model.py"]


def test_the_file_is_not_run(draft):
    manifest, _ = draft("import no_such_package\n1 / 0\nclass A(Model):\n    pass\n")
    assert manifest.code.class_name == "A"


def test_the_command_line_goes_before_the_class_and_the_class_before_the_module(draft):
    text = """
MANIFEST = {
    "model": "mine", "version": "7", "device": "cpu", "bytes_per_token": 2.0,
    "limits": {"max_batch_size": 4}, "parameters": {"a": 1},
}
class A(Model):
    bytes_per_token: float = 3.0
    limits = {"max_batch_size": 5, "max_length": 64, "buckets": [16, 64]}
    signature = {"inputs": [{"name": "text", "datatype": "BYTES"}]}
    predict = another
"""
    manifest, _ = draft(text, PublishOptions(version="8", limits={"max_batch_size": 6}))
    assert (manifest.model, manifest.version, manifest.device) == ("mine", "8", "cpu")
    assert manifest.bytes_per_token == 3.0
    assert manifest.limits == Limits(max_batch_size=6, max_length=64, buckets=(16, 64))
    assert manifest.signature.inputs[0].name == "text"
    assert manifest.parameters == {"a": 1}


def test_the_last_of_a_family_is_the_model(draft):
    text = "class A(Model):\n    pass\nclass B(A):\n    pass\nclass Other:\n    pass\n"
    assert draft(text)[0].code.class_name == "B"
    assert (
        draft(text, PublishOptions(model="m", version="1", class_name="A"))[0].code.class_name
        == "A"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class A:\n    pass\n", "no class derived from batchfleet.Model.*it has: A"),
        ("class A(Model):\n    pass\nclass B(Model):\n    pass\n", "several models: A, B"),
        ("class A(Model)\n    pass\n", r"model.py:1 is not Python"),
        ("class A(Model):\n    limits = make()\n", r"model.py:2: limits must be a literal"),
        ("class A(Model):\n    limits = [1]\n", "limits must be a dict"),
        ("class A(Model):\n    limits = {'speed': 1}\n", "unknown limit 'speed'"),
        ("MANIFEST = {'files': {}}\nclass A(Model):\n    pass\n", "must not contain files"),
        ("MANIFEST = {'parameters': {1, 2}}\nclass A(Model):\n    pass\n", "not plain JSON"),
        ("MANIFEST = {'colour': 1}\nclass A(Model):\n    pass\n", "unknown key 'colour'"),
    ],
)
def test_what_cannot_be_published_is_told_with_its_place(draft, text, reason):
    with pytest.raises(DraftError, match=reason):
        draft(text)


@pytest.mark.parametrize(
    ("text", "class_name"),
    [
        ("from batchfleet import Model as M\nclass A(M):\n    pass\n", "A"),
        ("import batchfleet as b\nclass A(b.Model):\n    pass\n", "A"),
        ("class Base:\n    pass\nclass A(Base, Model):\n    limits = {}\n", "A"),
        ("from x import Base\nclass A(Base, Model):\n    limits = {}\n", "A"),
        ("class A(Model):\n    def predict(self, *all): ...\n", "A"),
        ("class A(Model):\n    def predict(self, rows, context, more=1): ...\n", "A"),
        ("class A(Model):\n    @static\n    def predict(rows, context): ...\n", "A"),
    ],
)
def test_a_class_is_found_whatever_its_base_is_called_here(draft, text, class_name):
    assert draft(text)[0].code.class_name == class_name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("    limits = {}\n", r"model.py:1: A does not define predict\(self, rows, context\)"),
        ("    def predict(self, rows): ...\n", r"A.predict must take \(self, rows, context\)"),
        ("    def predict(self, rows, context, *, k): ...\n", "A.predict must take"),
        ("    async def predict(self, rows, context): ...\n", "A.predict is async"),
        ("    pass\n    def preprocess(self, rows, context): ...\n", r"preprocess must take .*row"),
        ("    pass\n    def load(self): ...\n", r"A.load must take \(self, context\)"),
    ],
)
def test_methods_that_cannot_be_called_are_told_before_anything_is_published(draft, text, reason):
    with pytest.raises(DraftError, match=reason):
        draft(f"class A(Model):\n{text}")


def test_a_longest_length_where_rows_have_none_is_refused(draft):
    limits = "class A(Model):\n    limits = {'max_length': 5}\n    pass\n"
    with pytest.raises(DraftError, match="max_length has no effect"):
        draft(limits)
    draft(f"{limits}    bytes_per_token = 4\n")
    draft(f"{limits}    def preprocess(self, row): ...\n")
    draft(limits.replace("class A(Model)", "from x import B\nclass A(B, Model)"))


def test_a_version_needs_a_name_and_the_class_must_exist(draft, tmp_path):
    with pytest.raises(DraftError, match="add --name and --version"):
        draft("class A(Model):\n    pass\n", PublishOptions())
    with pytest.raises(DraftError, match="no class 'B'"):
        draft("class A(Model):\n    pass\n", PublishOptions(model="m", version="1", class_name="B"))
    with pytest.raises(DraftError, match="cannot read"):
        draft_of_file(tmp_path / "absent.py", NAMED)


def test_files_folders_and_a_lock_file_come_along(draft, tmp_path):
    weights = tmp_path / "weights"
    (weights / "__pycache__").mkdir(parents=True)
    (weights / "a.bin").write_bytes(b"a")
    (weights / "__pycache__" / "a.pyc").write_bytes(b"a")
    lock = tmp_path / "requirements.lock"
    lock.write_text("x==1 --hash=sha256:" + "0" * 64 + "\n")
    wishes = PublishOptions(model="m", version="1", extras=(weights,), requirements=lock)
    manifest, sources = draft("class A(Model):\n    pass\n", wishes)
    assert [*sources] == ["model.py", "weights/a.bin", "requirements.lock"]
    assert manifest.environment == "env:" + hashlib.sha256(lock.read_bytes()).hexdigest()
    lock.write_text("x==1\n")
    with pytest.raises(DraftError, match="no hashes"):
        draft("class A(Model):\n    pass\n", wishes)


def test_folders_behind_links_come_along(draft, tmp_path):
    folder, beside = tmp_path / "assets", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    (beside / "words.txt").write_text("a")
    (folder / "linked").symlink_to(beside)
    wishes = PublishOptions(model="m", version="1", extras=(folder, tmp_path / "assets" / "linked"))
    _, sources = draft("class A(Model):\n    pass\n", wishes)
    assert sorted(sources) == ["assets/linked/words.txt", "linked/words.txt", "model.py"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_refused_by_name(draft, tmp_path, make):
    folder = tmp_path / "assets"
    folder.mkdir()
    make(folder / "odd")
    with pytest.raises(DraftError, match="assets/odd is"):
        draft(
            "class A(Model):\n    pass\n", PublishOptions(model="m", version="1", extras=(folder,))
        )


def test_a_model_that_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "model.py")
    with pytest.raises(DraftError, match="not a regular file"):
        draft_of_file(tmp_path / "model.py", NAMED)
    lock = PublishOptions(model="m", version="1", requirements=tmp_path / "model.py")
    (tmp_path / "other.py").write_text("class A(Model):\n" + PREDICT)
    with pytest.raises(DraftError, match="not a regular file"):
        draft_of_file(tmp_path / "other.py", lock)
