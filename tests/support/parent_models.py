"""A device process whose model starts other processes; run as a program in place of the real one.

The text of a row says what to do. What was started writes its number to a file, so that a test
knows it without the help of the connection.
"""
# ruff: noqa: ARG002  the signatures are those of Model

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from batchfleet.consumer.device.opened import VersionFiles
from batchfleet.consumer.device.program import main
from batchfleet.models.model import Model, Row

LINEAGE = "0123456789abcdef"
_FOREVER = ("sleep", "611")
_PATIENCE_S = 10


def _wait_for_ever():
    threading.Event().wait()


def _double(number):
    return 2 * number


class Parent(Model):
    """Does what the text of a row says; `deed:path` notes the number of the child in a file."""

    kept = ()

    def predict(self, rows, context):
        return [np.int64(self.do(*row["text"].partition(":")[::2])) for row in rows]

    def do(self, deed, path):
        result = getattr(self, deed)()
        if path:
            Path(path).write_text(str(result))
        return result

    def nothing(self):
        return 0

    def leave(self):
        os._exit(3)

    def crash(self):
        os.kill(os.getpid(), signal.SIGSEGV)
        _wait_for_ever()

    def stand_still(self):
        os.kill(os.getpid(), signal.SIGSTOP)
        return 0

    def close_all(self):
        os.closerange(3, 1000)
        _wait_for_ever()

    def fork_helper(self):
        helper = multiprocessing.get_context("fork").Process(target=_wait_for_ever, daemon=True)
        helper.start()
        return helper.pid

    def fork_pool(self):
        self.kept = multiprocessing.get_context("fork").Pool(1)
        return self.kept.apply(os.getpid)

    def use_pool(self):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.map(_double, [21])[0]

    def run(self):
        return subprocess.Popen(_FOREVER).pid

    def run_apart(self):
        return subprocess.Popen(_FOREVER, start_new_session=True, env={}).pid

    def run_deaf(self):
        script = "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"
        return subprocess.Popen([sys.executable, "-c", script]).pid

    def run_daemon(self):
        """As daemons are made: its parent is gone, its session is its own."""
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            grandchild = os.fork()
            if grandchild:
                os.write(theirs, str(grandchild).encode())
                os._exit(0)
            _wait_for_ever()
        os.waitpid(child, 0)
        return int(os.read(ours, 32))

    def terminate(self):
        child = subprocess.Popen(_FOREVER)
        child.terminate()
        return child.wait(_PATIENCE_S)

    def interrupt(self):
        child = subprocess.Popen(_FOREVER)
        child.send_signal(signal.SIGINT)
        return child.wait(_PATIENCE_S)

    def come_back_twice(self):
        """The child goes on where its parent does."""
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return 1
        return 2

    def example(self, length):
        return Row({"text": "nothing"})


if __name__ == "__main__":
    main(
        lambda _: (
            lambda load, _: VersionFiles(
                model_class=Parent, folder=Path(load.store), parameters={}, lineage=LINEAGE
            )
        )
    )
