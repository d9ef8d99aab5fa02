"""`batchfleet models init`, `try` and `publish FILE.py` as a user runs them."""

import json
import socket
import sys

import pytest
from support import commands
from support.commands import batchfleet

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
        done = batchfleet(*arguments, exit_code=exit_code, input=stdin)
        return done.stdout, done.stderr

    return run


@pytest.fixture
def faulty(tmp_path):
    path = tmp_path / "faulty.py"
    path.write_text(FAULTY)
    return path


@pytest.mark.slow
def test_a_new_model_works_is_tested_and_can_be_published(run, store_path, tmp_path):
    run("models", "init", "my-model.2")
    folder = tmp_path / "my-model.2"
    out, _ = run("models", "try", str(folder / "model.py"), "--input", str(folder / "x.json"))
    assert '"HELLO WORLD!"' in out
    assert "lengths 2 4" in out
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tested = commands.run(pytest_command, cwd=folder)
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
    assert "already exists" in err


@pytest.mark.parametrize(("name", "expected"), [("a-b.c", "ABC"), ("7up", "Model7up")])
def test_a_class_has_a_name_of_the_language(name, expected):
    assert class_name_of(name) == expected


@pytest.mark.slow
def test_each_stage_shows_what_it_gives(run, faulty):
    out, _ = run("models", "try", str(faulty), "--text", "abc", "--stage", "preprocess")
    assert "lengths 3" in out
    assert '"abc"' in out
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
    out, err = run("models", "try", str(faulty), "--text", "abc", stdin="p text\nc\n")
    assert "(Pdb) 'abc'" in err
    assert "0.5" in out


@pytest.mark.slow
def test_wrong_usage_names_the_fix(run, faulty):
    _, err = run("models", "publish", str(faulty), "--version", "1", exit_code=1)
    assert "add --name" in err
    _, err = run("models", "publish", "absent.py", "--version", "1", exit_code=1)
    assert "batchfleet models init" in err
    _, err = run("models", "try", "mine", "--text", "a", "--limit", "backlog=1", exit_code=2)
    assert "for FILE.py" in err
    _, err = run("models", "try", str(faulty), exit_code=2)
    assert "--input FILE" in err


@pytest.mark.slow
def test_a_file_beside_the_model_that_does_not_come_along_is_named_with_the_fix(run, faulty):
    folder = faulty.parent / "apart"  # from the folder that the command is run in
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'x'\n")
    faulty = folder / "faulty.py"
    source = str(faulty)
    faulty.write_text("import helper\n" + FAULTY)
    _, err = run("models", "try", source, "--text", "abc", exit_code=1)
    assert "add --file helper.py and write `from . import helper`" in err
    assert "models list" not in err
    faulty.write_text("from . import helper\n" + FAULTY)
    _, err = run("models", "try", source, "--text", "abc", exit_code=1)
    assert "not a file of the version; add it with --file helper.py" in err
    out, _ = run("models", "try", source, "--text", "abc", "--file", str(folder / "helper.py"))
    assert "0.5" in out
    optional = "try:\n    from . import absent\nexcept ImportError:\n    absent = None\n"
    faulty.write_text(optional + FAULTY)
    assert "0.5" in run("models", "try", source, "--text", "abc")[0]


@pytest.mark.slow
def test_numbers_in_json_take_the_datatype_of_the_signature(run, tmp_path):
    (tmp_path / "twice.py").write_text("""\
from batchfleet import Model

class Twice(Model):
    signature = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]}

    def predict(self, rows, context):
        return [row["x"] * 2 for row in rows]
""")
    for numbers, twice in (("[[1.5, 2.5]]", "3 5"), ("[[1, 2]]", "2 4")):
        inputs = f'{{"x": {numbers}}}'
        out, _ = run("models", "try", "twice.py", "--input", "-", stdin=inputs)
        assert f"FP32 [1, 2]\n  {twice}\n" in out


def test_quitting_the_debugger_or_having_no_terminal_for_it_is_told_once(run, faulty):
    faulty.write_text(FAULTY.replace("return 1 /", "breakpoint()\n    return 1 /"))
    texts = ("--text", "abc", "--text", "abcd", "--text", "abcde")
    _, err = run("models", "try", str(faulty), *texts, exit_code=1, stdin="")
    assert err.count("(Pdb)") == 1
    assert "breakpoint() reads standard input, which is no terminal here" in err
    assert "BdbQuit" not in err


def test_a_model_that_exits_does_not_end_the_command_without_a_word(run, faulty):
    faulty.write_text(FAULTY.replace("return 1 /", "raise SystemExit(3)\n    return 1 /"))
    _, err = run("models", "try", str(faulty), "--text", "abc", exit_code=1)
    assert "poison" in err
    assert "SystemExit: 3" in err


def test_what_a_trial_prints_for_programs_is_plain(run, faulty):
    out, _ = run("models", "try", str(faulty), "--text", "abc", "--stage", "preprocess", "--json")
    trial = json.loads(out)
    assert trial["values"] == ['"abc"']
    assert all(len(str(trial[name])) < 12 for name in trial if name.endswith("_ms"))


def test_publishing_says_one_line(run, faulty):
    out, err = run("models", "publish", str(faulty), "--name", "mine", "--version", "1")
    assert out.startswith("mine/1 is in the store")
    assert err == ""


def test_a_command_that_lives_elsewhere_is_pointed_to(run):
    _, err = run("environments", exit_code=2)
    assert "Did you mean `batchfleet models environment`?" in err
    _, err = run("stauts", exit_code=2)
    assert "Did you mean `batchfleet status`?" in err


def test_a_port_that_is_in_use_is_told_in_one_line(run, faulty):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, err = run("dev", str(faulty), "--port", str(port), exit_code=1)
    assert err.splitlines() == [
        f"error: port {port} of 127.0.0.1 is in use, maybe by another fleet; choose another with "
        "--port, or leave it out to use a socket"
    ]
