"""Traces as a model's author wants them: from the author's own first line on."""

from pathlib import Path
from types import TracebackType

_ROOT = Path(__file__).resolve().parents[1]
_OURS = frozenset({"consumer", "models", "ops"})
# The built-in models are authors like any other.
_RUNTIMES = _ROOT / "models" / "runtimes"
# Past what a derived class may have put in place of these.
_TRACE, _CAUSE, _CONTEXT = (
    vars(BaseException)[name] for name in ("__traceback__", "__cause__", "__context__")
)


def with_own_frames(error: BaseException) -> BaseException:
    """The same error, with batchfleet's frames in front of the author's cut off its trace.

    An error that has no other frames keeps its own; errors that led to it are cut likewise.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        _TRACE.__set__(one, _cut(_TRACE.__get__(one)))
        cause = _CAUSE.__get__(one)
        one = _CONTEXT.__get__(one) if cause is None else cause
    return error


def trace_of(error: BaseException) -> TracebackType | None:
    """The traceback of an error, even if its class interferes."""
    trace: TracebackType | None = _TRACE.__get__(error)
    return trace


def _cut(trace: TracebackType | None) -> TracebackType | None:
    first = trace
    while first is not None and _is_ours(first.tb_frame.f_code.co_filename):
        first = first.tb_next
    return first or trace


def _is_ours(filename: str) -> bool:
    if filename.startswith("<frozen "):
        return True
    try:
        path = Path(filename).resolve()
    except (OSError, ValueError, RuntimeError):  # the name that code was compiled under is free
        return False
    if path.parent.name == "importlib":
        return True
    if not path.is_relative_to(_ROOT) or path.is_relative_to(_RUNTIMES):
        return False
    return path.relative_to(_ROOT).parts[0] in _OURS
