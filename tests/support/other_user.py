"""A program of another user of the machine, without any right of ours."""

import os
import subprocess
import sys

import pytest

ATTACKER = 54322
_PATIENCE_S = 60

needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can become another user"
)
_BECOME = f"""
import json, os, socket, stat, sys
os.setgroups([])
os.setresgid({ATTACKER}, {ATTACKER}, {ATTACKER})
os.setresuid({ATTACKER}, {ATTACKER}, {ATTACKER})
"""


def as_attacker(script):
    """Run Python code of the standard library as another user; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", _BECOME + script], capture_output=True, text=True,
        timeout=_PATIENCE_S, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def answer_to_ping(place):
    """What a server says to another user's PING, or the error of connecting; a path or a port."""
    return as_attacker(f"""
place = {place!r}
try:
    if isinstance(place, str):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(20)
        peer.connect(place)
    else:
        peer = socket.socket()
        peer.settimeout(20)
        peer.connect(("127.0.0.1", place))
    peer.sendall(b"PING\\r\\n")
    print(peer.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
""")
