"""A deliberate fault, as a value: one text of one file replaced by another."""

from dataclasses import dataclass

CONTRACT = "tests/contract"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change that must turn tests red.

    Attributes:
        name: a few words.
        breaks: the promise that it breaks.
        path: the file, below the root of the tree.
        before: text that stands in it exactly once.
        after: what it is replaced by.
        tests: node ids; at least one of them must fail.
    """

    name: str
    breaks: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]

    def applied_to(self, text):
        """The file's text with the fault in it.

        Raises:
            ValueError: the text to replace is not there exactly once.
        """
        count = text.count(self.before)
        if count != 1:
            raise ValueError(f"{self.name}: its text stands {count} times in {self.path}, not once")
        return text.replace(self.before, self.after)


def on_server(file, *names):
    """Tests of the contract, on the session's server: a fault of Lua shows there."""
    return tuple(f"{CONTRACT}/{file}.py::{name}[session]" for name in names)


def on_twin(file, *names):
    """The same tests on the twin: a fault of its own shows there."""
    return tuple(f"{CONTRACT}/{file}.py::{name}[memory]" for name in names)
