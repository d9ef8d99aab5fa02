"""`batchfleet dev`: a model served from its file, at a terminal."""

import fcntl
import json
import os
import select
import subprocess
import termios
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import psutil
import pytest
from support.commands import PROGRAM, batchfleet
from support.fleet import until

from batchfleet import Client
from batchfleet.ops.developing import Snapshot

PATIENCE_S = 60.0
SHOUT = """\
from batchfleet import Model

class Shout(Model):
    def predict(self, rows, context):
        return [{"text": self.loud(row["text"])} for row in rows]

    def loud(self, text):
        return text.upper()
"""


class Terminal:
    """`batchfleet dev` as a session of its own at a terminal that a test types at."""

    def __init__(self, path, *arguments):
        self.master, slave = os.openpty()
        self.seen = ""

        def take_terminal():
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*PROGRAM, "dev", str(path), "--json", *arguments],
            stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=take_terminal,  # noqa: PLW1509 (one system call)
        )  # fmt: skip
        os.close(slave)
        line = self.expect("}\r\n")
        self.facts = json.loads(line[line.index("{") :])
        self.client = Client(self.facts["redis_url"])

    def expect(self, text):
        """Read until `text` was shown; returns what was shown up to it."""
        give_up = monotonic() + PATIENCE_S
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], give_up - monotonic())
            assert ready, f"{text!r} was not shown within {PATIENCE_S} s: {self.seen}"
            self.seen += os.read(self.master, 65536).decode()
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text):
        os.write(self.master, text.encode())

    def ask(self, text):
        return self.client.infer(self.facts["model"], text)

    def close(self):
        self.client.close()
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self.master)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "shout.py"
    path.write_text(SHOUT)
    return path


@pytest.fixture
def terminal(path):
    terminal = Terminal(path)
    yield terminal
    terminal.close()


@pytest.mark.slow
def test_edits_are_followed_and_errors_change_nothing(terminal, path):
    terminal.expect("shout/1 is serving")
    assert terminal.ask("a").output == ["A"]

    path.write_text(SHOUT.replace("upper", "title"))
    terminal.expect("shout/2 is serving")
    result = terminal.ask("a b")
    assert (result.output, result.version) == (["A B"], "2")

    path.write_text(SHOUT + "1 / 0\n")
    shown = terminal.expect("shout/2 keeps serving")
    assert f'File "{path}", line 9, in <module>' in shown
    assert "ZeroDivisionError" in shown
    assert terminal.ask("a b").version == "2"

    path.write_text(SHOUT.replace("def loud(self", "def loud(self("))
    assert "shout.py:7 is not Python" in terminal.expect("keeps serving")

    path.write_text(SHOUT.replace("text.upper()", "text.nonsense()"))
    terminal.expect("shout/5 is serving")
    with pytest.raises(Exception, match="AttributeError"):
        terminal.ask("a")
    shown = terminal.expect("AttributeError")
    frames = [line for line in shown.splitlines() if line.strip().startswith("File ")]
    assert all(str(path) in frame for frame in frames)
    assert "in loud" in frames[-1]
    devices = [
        child for child in psutil.Process(terminal.process.pid).children()
        if "batchfleet.consumer.device" in child.cmdline()
    ]  # fmt: skip
    until(lambda: sum(child.is_running() for child in devices) == 1, "earlier versions have ended")


def test_breakpoints_stop_at_the_terminal(terminal, path):
    terminal.expect("shout/1 is serving")
    path.write_text(SHOUT.replace("return text.upper()", "breakpoint()\n        return text"))
    terminal.expect("shout/2 is serving")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(terminal.ask, "hello")
        terminal.expect("(Pdb) ")
        terminal.type("p text\n")
        assert "'hello'" in terminal.expect("(Pdb) ")
        terminal.type("text = 'changed'\n")
        terminal.expect("(Pdb) ")
        terminal.type("c\n")
        assert asked.result(PATIENCE_S).output == ["changed"]


def test_a_file_that_is_gone_and_a_row_that_is_refused_are_told(terminal, path):
    terminal.expect("shout/1 is serving")
    path.unlink()
    terminal.expect("is gone\r\nits last version keeps serving")
    assert terminal.ask("a").output == ["A"]
    path.write_text(SHOUT + "    def preprocess(self, row):\n        return int(row['text'])\n")
    terminal.expect("shout/2 is serving")
    with pytest.raises(Exception, match="bad_inputs"):
        terminal.ask("a")
    terminal.expect("rows_refused")
    terminal.expect(f"{path}:10")


def test_ctrl_c_ends_everything(terminal):
    terminal.expect("shout/1 is serving")
    family = psutil.Process(terminal.process.pid).children(recursive=True)
    assert len(family) >= 3
    terminal.type("\x03")
    assert terminal.process.wait(PATIENCE_S) == 0
    assert psutil.wait_procs(family, timeout=PATIENCE_S)[1] == []


def test_a_file_that_makes_no_model_is_refused_at_once(tmp_path):
    (tmp_path / "empty.py").write_text("")
    done = batchfleet("dev", tmp_path / "empty.py", exit_code=1)
    assert "no class derived from batchfleet.Model" in done.stderr


def test_a_file_that_is_away_for_a_moment_is_left_out(path, tmp_path):
    before = Snapshot.of([path, tmp_path / "absent"])
    assert [*before.files] == [path]
    path.write_text(SHOUT + "\n")
    assert Snapshot.of([path]) != before
