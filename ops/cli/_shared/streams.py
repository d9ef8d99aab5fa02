"""Output that is safe whatever stdout and stderr are: closed, full, a pipe that is gone, ASCII.

Text goes out as far as the stream's encoding has it, with `?` for the rest. A stdout that cannot
be written to ends the command with one line on stderr; a stderr that cannot is nobody's to tell.
"""

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO

import click

_STDIN, _STDOUT, _STDERR = range(3)


class OutputError(click.ClickException):
    """stdout cannot be written to; exit code 1."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"output: cannot write to stdout: {error.strerror}")
        self._is_told = not isinstance(error, BrokenPipeError)

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it, unless the reader has merely seen enough, as `head` has."""
        if self._is_told:
            click.echo(f"error: {self.message}", file=file or sys.stderr)


class AsciiText(io.TextIOWrapper):
    """Text on a stream that takes ASCII alone.

    It does not call itself ASCII: click would write UTF-8 to such a stream, unasked.
    """

    def write(self, text: str) -> int:
        """Write it with `?` for what ASCII lacks."""
        return super().write(text.encode("ascii", "replace").decode("ascii"))


class _Stdout(io.FileIO):
    """Tells once that it is broken, and takes everything after that: nothing is left to flush."""

    _is_broken = False

    def write(self, data: Any) -> int:
        if self._is_broken:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._is_broken = True
            raise OutputError(error) from error


class _Stderr(io.FileIO):
    """Takes everything, broken or not."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Make the streams of this process safe, unless somebody has put others in their place."""
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        yield
        return
    _occupy(_STDIN, os.O_RDONLY)
    _occupy(_STDOUT, os.O_RDONLY)  # writing fails there, as it should
    _occupy(_STDERR, os.O_WRONLY)
    sys.stdin = sys.stdin or open(_STDIN, closefd=False)  # noqa: SIM115 - lives as long as we do
    sys.stdout = _text_on(_Stdout(_STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text_on(_Stderr(_STDERR, "w", closefd=False), sys.stderr)
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OutputError as error:
            error.show()
            sys.exit(error.exit_code)


def _occupy(descriptor: int, flags: int) -> None:
    """Fill the place of a stream that was closed, or the next file would be opened there."""
    try:
        os.fstat(descriptor)
    except OSError:
        opened = os.open(os.devnull, flags)
        os.dup2(opened, descriptor)
        if opened != descriptor:
            os.close(opened)


def _text_on(raw: io.FileIO, before: TextIO | None) -> TextIO:
    encoding = "utf-8" if before is None else before.encoding
    line_buffering = raw.isatty() or isinstance(raw, _Stderr)
    buffer = io.BufferedWriter(raw)
    if codecs.lookup(encoding).name == "ascii":
        return AsciiText(buffer, "utf-8", "replace", line_buffering=line_buffering)
    return io.TextIOWrapper(buffer, encoding, "replace", line_buffering=line_buffering)
