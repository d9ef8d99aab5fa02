"""What a model's fault looks like on the terminal of a test that has not set up any logs."""

import subprocess
import sys

PATIENCE_S = 60
PROGRAM = """
from batchfleet import Model, ModelError
from batchfleet.testing import serve

class Faulty(Model):
    def predict(self, rows, context):
        if rows[0]["text"].startswith("exit"):
            raise SystemExit(3)
        return [1 / 0]

with serve(Faulty) as client:
    for text in ("very secret", "exit secretly"):
        try:
            client.infer("Faulty", text)
        except ModelError as error:
            print(error.name)
"""


def test_a_plain_trace_on_stderr_without_values(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["model_error", "poison"], done.stderr
    assert "secret" not in done.stderr
    assert "─" not in done.stderr
    assert f'File "{path}", line 9, in predict' in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "SystemExit: 3" in done.stderr
    assert len(done.stderr.splitlines()) < 40


SILENCING = """
import logging
import structlog
from batchfleet import Model, ModelError
from batchfleet.testing import serve

class Faulty(Model):
    def load(self, context):
        logging.disable(logging.CRITICAL)
        structlog.configure(processors=[lambda *_: 1 / 0])

    def predict(self, rows, context):
        raise KeyError("told in the log")

with serve(Faulty) as client:
    try:
        client.infer("Faulty", "hello")
    except ModelError as error:
        print(error.name)
"""


def test_a_model_that_sets_up_logs_silences_nothing(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(SILENCING)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["model_error"]), done.stderr
    assert "model_raised" in done.stderr
    assert "KeyError: 'told in the log'" in done.stderr
