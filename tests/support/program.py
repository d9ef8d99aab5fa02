"""A router or consumer as a process of its own, as its user starts it."""

import json
import os
import select
import subprocess
import sys

from batchfleet.service.lifecycle import spawn

PATIENCE_S = 20.0


class Program:
    """One router or consumer as a process of its own; its log lies in a file, one JSON a line."""

    def __init__(self, kind, environ, log_path, python=sys.executable):
        self.kind = kind
        self.log_path = log_path
        with log_path.open("wb") as log:
            self.process = spawn(
                [python, "-m", "batchfleet.ops", kind, "--json"],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.facts = {}

    @property
    def pid(self):
        return self.process.pid

    def wait_until_ready(self, timeout_s=PATIENCE_S):
        """Wait for the ready line and keep it as `facts`."""
        out = self.process.stdout
        poller = select.poll()
        poller.register(out, select.POLLIN)
        assert poller.poll(timeout_s * 1000), f"{self.kind} is not ready: {self.log_text()}"
        line = out.readline()
        assert line, f"{self.kind} ended before it was ready: {self.log_text()}"
        self.facts = json.loads(line)
        return self

    def log_text(self):
        return self.log_path.read_text(errors="replace")

    def events(self, name):
        """The log lines of one event, oldest first."""
        lines = (line for line in self.log_text().splitlines() if line.startswith("{"))
        found = (json.loads(line) for line in lines if f'"{name}"' in line)
        return [event for event in found if event["event"] == name]

    def is_running(self):
        return self.process.poll() is None

    def device_pid(self):
        """Process id of the device process that runs now (of a consumer)."""
        return self.events("device.started")[-1]["pid"]

    def signal(self, number):
        os.kill(self.pid, number)

    def stop(self, timeout_s=PATIENCE_S):
        """Ask to stop, as an operator does; returns the exit code."""
        if self.is_running():
            self.process.terminate()
        return self.wait(timeout_s)

    def kill(self):
        """End it on the spot."""
        self.process.kill()
        return self.wait()

    def wait(self, timeout_s=PATIENCE_S):
        """Wait for the end; returns the exit code. What it still printed is in `rest`."""
        self.rest, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode
