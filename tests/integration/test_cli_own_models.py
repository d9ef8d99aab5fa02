"""`batchfleet models init`, `try` and `publish FILE.py` as a user runs them."""

import json
import subprocess
import sys

import pytest

from batchfleet.models.store import Store
from batchfleet.ops.model_template import class_name_of

PATIENCE_S = 60
FAULTY = """\
from batchfleet import Model, Prepared

def deep(text):
    return 1 / (len(text) - 1)

class Faulty(Model):
    def preprocess(self, row):
        return Prepared(row["text"], len(row["text"]))

    def predict(self, rows, context):
        return [{"score": deep(text)} for text in rows]
"""


@pytest.fixture
def run(tmp_path, monkeypatch, store_path):
    """Run a command in the test's folder; gives what it printed, on stdout and on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHFLEET_STORE", str(store_path))

    def run(*arguments, exit_code=0, stdin=""):
        done = subprocess.run(
            [sys.executable, "-m", "batchfleet.ops", *arguments],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False, input=stdin,
        )  # fmt: skip
        assert done.returncode == exit_code, done.stderr
        return done.stdout, done.stderr

    return run


@pytest.fixture
def faulty(tmp_path):
    path = tmp_path / "faulty.py"
    path.write_text(FAULTY)
    return path


def test_a_new_model_works_is_tested_and_can_be_published(run, store_path, tmp_path):
    run("models", "init", "my-model.2")
    folder = tmp_path / "my-model.2"
    out, _ = run("models", "try", str(folder / "model.py"), "--input", str(folder / "x.json"))
    assert '"HELLO WORLD!"' in out
    assert "lengths 2 4" in out
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert "2 passed" in tested.stdout
    published = ("--name", "mine", "--version", "1", "--limit", "max_batch_size=4")
    run("models", "publish", str(folder / "model.py"), *published)
    manifest = Store(str(store_path)).manifest("mine", "1")
    assert manifest.code.class_name == "MyModel2"
    assert manifest.limits.max_batch_size == 4
    assert manifest.limits.buckets == (16, 64, 256)
    out, _ = run("models", "try", "mine/1", "--text", "a b", "--json")
    assert json.loads(out)["lengths"] == [2]
    _, err = run("models", "init", "my-model.2", exit_code=1)
    assert "is there already" in err


@pytest.mark.parametrize(("name", "expected"), [("a-b.c", "ABC"), ("7up", "Model7up")])
def test_a_class_has_a_name_of_the_language(name, expected):
    assert class_name_of(name) == expected


def test_each_stage_shows_what_it_gives(run, faulty):
    out, _ = run("models", "try", str(faulty), "--text", "abc", "--stage", "preprocess")
    assert "lengths 3" in out
    assert "'abc'" in out
    assert "predict  " not in out
    out, _ = run("models", "try", str(faulty), "--text", "abc", "--stage", "predict")
    assert "score: 0.5" in out
    out, _ = run("models", "try", str(faulty), "--input", "-", "--json", stdin='["abc"]')
    trial = json.loads(out)
    assert trial["outputs"][0]["data"] == [0.5]
    assert trial["batches"] == [1]


def test_an_error_of_the_class_is_shown_with_its_own_trace(run, faulty):
    _, err = run("models", "try", str(faulty), "--text", "a", exit_code=1)
    assert err.count("Traceback") == 1
    frames = [line for line in err.splitlines() if line.startswith("  File ")]
    assert all(str(faulty) in frame for frame in frames)
    assert "in deep" in frames[-1]
    assert "error: model_error (300): ZeroDivisionError" in err


def test_a_class_that_cannot_be_loaded_is_told_with_its_trace(run, faulty):
    faulty.write_text(
        FAULTY.replace("def preprocess", "def load(self, c):\n        open('/no')\n    def x")
    )
    _, err = run("models", "try", str(faulty), "--text", "a", exit_code=1)
    assert f'File "{faulty}", line 8, in load' in err
    assert "FileNotFoundError" in err.splitlines()[-2]


def test_breakpoints_stop_at_the_terminal(run, faulty):
    faulty.write_text(FAULTY.replace("return 1 /", "breakpoint()\n    return 1 /"))
    out, _ = run("models", "try", str(faulty), "--text", "abc", stdin="p text\nc\n")
    assert "(Pdb) 'abc'" in out
    assert "0.5" in out


def test_wrong_usage_names_the_fix(run, faulty):
    _, err = run("models", "publish", str(faulty), "--version", "1", exit_code=1)
    assert "add --name" in err
    _, err = run("models", "publish", "absent.py", "--version", "1", exit_code=1)
    assert "batchfleet models init" in err
    _, err = run("models", "try", "mine", "--text", "a", "--limit", "backlog=1", exit_code=2)
    assert "for FILE.py" in err
    _, err = run("models", "try", str(faulty), exit_code=2)
    assert "--input FILE" in err
