"""What happens to a row that is longer than the model takes."""

from ..wire.errors import ErrorKind, RequestError


def tokens_to_cut(length: int, longest: int, truncate: str, *, more: bool = False) -> int:
    """How many tokens of a row must go; 0 where it fits or `longest` is 0 (no limit).

    Where there is `more` of the row than the `length` that was counted, it is too long in any case.

    Raises:
        CallerError: `too_long` where the policy in force is not `end`.
    """
    if not longest or (length <= longest and not more):
        return 0
    if truncate != "end":
        raise RequestError.of(
            ErrorKind.TOO_LONG,
            f"a row has {'over ' * more}{length} tokens; the model takes {longest}",
        )
    return max(1, length - longest)
