"""CPU time of a device process by request, of this tree and of another, in turns in one run.

    python tests/acceptance/measuring/device_cpu.py --before ROOT

`ROOT` is the root of another checkout (`git archive REF | tar -x -C ROOT`), whose device process
runs the same models. Prints milliseconds a request for each and the median ratio of the turns; exit
code 1 where a request of 1 MB takes more than 1.1 times as much, or a small row more than 1.05.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

import msgpack
import numpy as np

ROOT = Path(__file__).parents[3]
LARGE_RATIO_MAX = 1.1
SMALL_RATIO_MAX = 1.05
TIMEOUT_S = 60.0
LARGE = np.zeros((1, 1 << 18), np.float32)  # 1 MB
SMALL = np.zeros((1, 4), np.float32)
# Name of the model → inputs, requests in a message, messages in a turn.
CASES = {
    "takes": (LARGE, 1, 60),
    "gives": (LARGE, 1, 60),
    "prepares": (LARGE, 1, 60),
    "stacks": (LARGE, 1, 60),
    "small": (SMALL, 32, 150),
    "small_prepared": (SMALL, 32, 150),
}
_LANE = 1


def serve():
    """Be a device process with the models of the cases."""
    from batchfleet.consumer.device.loading import VersionFiles  # noqa: PLC0415  of either tree
    from batchfleet.consumer.device.program import main  # noqa: PLC0415
    from batchfleet.models.model import Model  # noqa: PLC0415

    class Takes(Model):
        def predict(self, rows, _):
            return [row["x"][:1] for row in rows]

    class Gives(Model):
        def predict(self, rows, _):
            return [row["x"] + 1 for row in rows]

    class Prepares(Takes):
        def preprocess(self, row):
            return {"x": row["x"] * 2}

    class Stacks(Model):
        stack = True

        def predict(self, rows, _):
            return list(rows["x"][:, :1])

    kinds = {"gives": Gives, "prepares": Prepares, "small_prepared": Prepares, "stacks": Stacks}

    def open_files(load, _):
        kind = kinds.get(load.model, Takes)
        return VersionFiles(model_class=kind, folder=Path("/"), parameters={}, lineage="0" * 16)

    main(lambda _: open_files)


class Device:
    """A device process of one tree, spoken to in plain msgpack: the trees' messages may differ."""

    def __init__(self, root, model):
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(TIMEOUT_S)
        command = [sys.executable, __file__, "--serve", "--fd", str(theirs.fileno())]
        environ = {"PYTHONPATH": str(root / "namespace")}
        self.process = subprocess.Popen(
            [*command, "--parent", str(os.getpid())], pass_fds=[theirs.fileno()], env=environ
        )
        theirs.close()
        self._number = 0
        self._say("Load", _LANE, model, "1", "/", "cpu", 1, b'{"version":"1","limits":{}}')
        self._next("Ready")

    def _say(self, *fields):
        body = msgpack.packb(fields)
        self._socket.sendall(len(body).to_bytes(4, "little") + body)

    def _next(self, *ops):
        """The fields of the next message of these kinds, its name before them."""
        while True:
            message = msgpack.unpackb(self._read(int.from_bytes(self._read(4), "little")))
            if message[0] in ops:
                return message

    def _read(self, size):
        data = bytearray(size)
        view = memoryview(data)
        while view:
            view = view[self._socket.recv_into(view) :]
        return data

    def run(self, array, count):
        """Run `count` requests of one row; all must be answered."""
        tensor = {"name": "x", "datatype": "FP32", "shape": [*array.shape], "data": array.tobytes()}
        inputs = msgpack.packb([tensor])
        items = []
        for _ in range(count):
            self._number += 1
            kind = "application/msgpack"
            items.append([self._number, kind, kind, inputs, None, None, None])
        self._say("PrepareRun", self._number, _LANE, items)
        answered = 0
        while answered < count:
            name, *fields = self._next("Done", "Answers")
            failures, answers = fields[4:6] if name == "Done" else reversed(fields)
            assert not failures, failures
            answered += len(answers)

    def cpu_ms(self):
        """Time on processors of all its threads; finer than the clock ticks of `stat`."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6

    def close(self):
        self._socket.close()
        self.process.kill()
        self.process.wait(TIMEOUT_S)


def turn_ms(device, array, count, messages):
    """CPU milliseconds a request."""
    before_ms = device.cpu_ms()
    for _ in range(messages):
        device.run(array, count)
    return (device.cpu_ms() - before_ms) / (count * messages)


def compare(name, roots, turns):
    """Milliseconds of each tree, and the median ratio of its turns."""
    array, count, messages = CASES[name]
    devices = [Device(root, name) for root in roots]
    try:
        for device in devices:
            turn_ms(device, array, count, messages)
        pairs = [[turn_ms(one, array, count, messages) for one in devices] for _ in range(turns)]
    finally:
        for device in devices:
            device.close()
    return [statistics.median(column) for column in zip(*pairs, strict=True)], statistics.median(
        pair[-1] / pair[0] for pair in pairs
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--case", choices=CASES, action="append")
    given = parser.parse_args()
    failed = False
    for name in given.case or CASES:
        (before_ms, after_ms), ratio = compare(name, [given.before, ROOT], given.turns)
        most = SMALL_RATIO_MAX if name.startswith("small") else LARGE_RATIO_MAX
        failed |= ratio > most
        words = f"{name:16} {before_ms:.4f} → {after_ms:.4f} ms a request, {ratio:.3f} (≤ {most})\n"
        sys.stdout.write(words)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(serve() if "--serve" in sys.argv else main())
