"""Packages that only a comparison needs, in a folder of their own: setting up goes without them."""

import subprocess
import sys
from hashlib import sha256

from benchmarks.processes import ROOT

_REQUIREMENTS = ROOT / "tests" / "acceptance" / "requirements-peers.txt"
_DOWNLOAD_S = 600.0


def peer_packages():
    """The folder with the packages, which are installed if they are not yet, and an empty text.

    Where that fails, no folder, and pip's last words.
    """
    digest = sha256(_REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = ROOT / ".cache" / "peers" / digest
    complete = folder / "complete"
    if not complete.exists():
        # Without what they depend on: numpy and others are here, and must stay those that are.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
        command += ["--target", str(folder), "-r", str(_REQUIREMENTS)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
        )
        if done.returncode:
            return None, f"onnxruntime cannot be installed: {done.stderr.strip()[-120:]}"
        complete.touch()
    return folder, ""
