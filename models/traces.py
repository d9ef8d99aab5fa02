"""Traces as a model's author wants them: from the author's own first line on."""

from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[1]
_OURS = frozenset({"consumer", "models", "ops"})
# The built-in models are authors like any other.
_RUNTIMES = _ROOT / "models" / "runtimes"


def with_own_frames(error: BaseException) -> BaseException:
    """The same error, with batchfleet's frames in front of the author's cut off its trace.

    An error that has no other frames keeps its own; errors that led to it are cut likewise.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        one.__traceback__ = _cut(one.__traceback__)
        one = one.__cause__ or one.__context__
    return error


def _cut(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while first is not None and _is_ours(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    return first or trace


def _is_ours(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    path = Path(filename).resolve()
    if path.parent.name == "importlib":
        return True
    if not path.is_relative_to(_ROOT) or path.is_relative_to(_RUNTIMES):
        return False
    return path.relative_to(_ROOT).parts[0] in _OURS
