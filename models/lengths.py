"""What happens to a row that is longer than the model takes."""

from ..wire.errors import ErrorKind, RequestError


def tokens_to_cut(length: int, longest: int, truncate: str) -> int:
    """How many tokens of a row must go; 0 where it fits or `longest` is 0 (no limit).

    Raises:
        CallerError: `too_long` where the policy in force is not `end`.
    """
    if not longest or length <= longest:
        return 0
    if truncate != "end":
        raise RequestError.of(
            ErrorKind.TOO_LONG, f"a row has {length} tokens; the model takes {longest}"
        )
    return length - longest
