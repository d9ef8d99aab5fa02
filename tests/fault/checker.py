"""From the history of a run to a verdict. Pure.

A verdict counts against the fleet:

* lost: submitted and never answered, unless the server was made to forget it
* duplicate answers: a second item under a reply key
* changed: the reply read twice differs, or is gone the second time
* wrong: an outcome that the run does not expect, an answer that is not f(input), or one that no
  model has computed
* late: answered after the deadline and `LATE_MS`
* unexpected: something about an id that nobody submitted
* computed too often: more computes than one and the faults of the run
* meagre: fewer requests than the run must have, so that an empty history never passes
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

LATE_MS = 2000
OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a history shows; the ids at fault by kind. `forgiven` counts what was lost rightly."""

    requests: int
    computes: int
    faults: int
    requests_min: int
    forgiven: int = 0
    lost: tuple[str, ...] = ()
    duplicate_answers: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    computed_too_often: tuple[str, ...] = ()

    @property
    def meagre(self):
        return self.requests < self.requests_min

    @property
    def complaints(self):
        """Kind → ids, of the kinds that there are any of."""
        return {kind: ids for kind in KINDS if (ids := getattr(self, kind))}

    @property
    def holds(self):
        return not self.meagre and not self.complaints


KINDS = (
    "lost",
    "duplicate_answers",
    "changed",
    "wrong",
    "late",
    "unexpected",
    "computed_too_often",
)


@dataclass(slots=True)
class Story:
    """Everything about one id."""

    submitted: dict | None = None
    replies: list = field(default_factory=list)
    computes: int = 0

    @property
    def answered(self):
        return any(reply["items"] for reply in self.replies)


def check(lines, requests_min=1):
    """The verdict on the lines of one run; `requests_min` below 1 counts as 1."""
    stories = defaultdict(Story)
    counts = Counter(line["event"] for line in lines)
    wiped_ms = [line["at_ms"] for line in lines if line["event"] == "wiped"]
    for line in sorted(lines, key=lambda line: line["at_ms"]):
        if "id" in line:
            _note(stories[line["id"]], line)
    known = {name: story for name, story in stories.items() if story.submitted}
    lost = {name for name, story in known.items() if not story.answered}
    forgiven = {name for name in lost if _is_wiped(known[name], wiped_ms)}
    faults = counts["fault"]
    return Verdict(
        requests=len(known),
        computes=counts["computed"],
        faults=faults,
        requests_min=max(1, requests_min),
        forgiven=len(forgiven),
        lost=tuple(sorted(lost - forgiven)),
        duplicate_answers=_those(known, _is_doubled),
        changed=_those(known, lambda story: _is_changed(story, wiped_ms)),
        wrong=_those(known, _is_wrong),
        late=_those(known, _is_late),
        unexpected=tuple(sorted(stories.keys() - known.keys())),
        computed_too_often=_those(known, lambda story: story.computes > 1 + faults),
    )


def _note(story, line):
    if line["event"] == "submitted":
        story.submitted = story.submitted or line
    elif line["event"] == "replied":
        story.replies.append(line)
    elif line["event"] == "computed":
        story.computes += 1


def _those(stories, guilty):
    return tuple(sorted(name for name, story in stories.items() if guilty(story)))


def _is_wiped(story, wiped_ms):
    return any(at_ms >= story.submitted["at_ms"] for at_ms in wiped_ms)


def _is_doubled(story):
    return any(reply["items"] > 1 for reply in story.replies)


def _is_changed(story, wiped_ms):
    if _is_wiped(story, wiped_ms):
        return False
    return len({reply["body"] for reply in story.replies}) > 1


def _is_wrong(story):
    # One that is gone is not wrong: `changed` says so.
    return any(reply["items"] and not _is_right(story, reply) for reply in story.replies)


def _is_right(story, reply):
    if reply["outcome"] not in story.submitted["expected"]:
        return False
    answers_input = reply["digest"] == story.submitted["digest"] and story.computes > 0
    return answers_input or reply["outcome"] != OK


def _is_late(story):
    if not story.replies:
        return False
    limit_ms = story.submitted["at_ms"] + story.submitted["timeout_ms"] + LATE_MS
    return story.replies[0]["at_ms"] > limit_ms
