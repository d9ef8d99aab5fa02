import os
import socket

import pytest

from batchfleet.service.regular_files import open_regular, read_regular


def test_a_regular_file_is_read_up_to_a_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abcdef")
    assert read_regular(path, 6) == b"abcdef"
    with pytest.raises(OSError, match="more than 5 bytes"):
        read_regular(path, 5)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_regular(link, 6) == b"abcdef"


def test_nothing_else_is_opened_or_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    with listening:
        for name in ("fifo", "folder", "socket", "absent"):
            with pytest.raises(OSError):
                open_regular(tmp_path / name)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "fifo")
