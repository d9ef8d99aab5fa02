"""The documents that are drawn from tables of the code."""

import textwrap

from batchfleet.broker.errors import CODES, RefusedError, UnreachableError
from batchfleet.broker.rights import OPERATOR, ROUTER, RQ, WORKER, acl_of, acl_of_jobs
from batchfleet.service.events import EVENTS, EventRow
from batchfleet.wire.states import MEANINGS, TERMINAL, TRANSITIONS, State

_CODES_HEAD = """\
# Errors of the server

Generated from the table in `broker/errors.py` by `make docs`; do not edit. Programs decide by the
first word of the server's error message and ignore the rest.

| code | what has happened | what a program does |
|---|---|---|
"""


def codes_markdown() -> str:
    """The text of `docs/server-errors.md`."""
    rows = [(f"`{code}`", row.meaning, row.error.remedy) for code, row in CODES.items()]
    rows.append(("any other", "the server refused a command", RefusedError.remedy))
    rows.append(
        (
            "none",
            "no connection, or it broke: the outcome of the command is unknown, and every "
            "command is safe to repeat",
            UnreachableError.remedy,
        )
    )
    return _CODES_HEAD + "".join(
        f"| {code} | {meaning} | {remedy.value} |\n" for code, meaning, remedy in rows
    )


_RIGHTS_HEAD = """\
# Rights of the fleet's Redis users

Generated from the lists in `broker/rights.py` by `make docs`; do not edit. `bf` is the namespace of
the fleet. At startup, each program checks whether its Redis user has all rights (permissions) of
its role. If not, it names the missing ones and exits with code 1. If its user has the rights of an
administrator (`ACL SETUSER`, `CONFIG SET`, `FLUSHALL`), it logs `server.advice` and continues,
unless the server is on a socket. With `+config|get`, which is optional, it also checks the server's
settings (`docs/operating.md`). `batchfleet up` and commands that change the fleet need the rights
of the operator. Pass each block below to `ACL SETUSER` as one line. A new Redis user has no access
to channels unless you grant it. `docs/protocol.md` §3 has the rights of a tenant.

One user may have several roles. You can add `+client|setname`; connections then have names in
`CLIENT LIST`. A URL with a database number (`/1`) needs `+select`.
"""


def rights_markdown() -> str:
    """The text of `docs/rights.md`."""
    blocks = [
        *(_rights_block(role.title, acl_of(role, "bf")) for role in (ROUTER, WORKER, OPERATOR)),
        _rights_block(RQ.title, acl_of_jobs("bf")),
    ]
    return "\n".join([_RIGHTS_HEAD, *blocks, _RIGHTS_TAIL])


def _rights_block(title: str, rules: list[str]) -> str:
    lines = textwrap.wrap(" ".join(rules), 96)
    return f"## The {title}\n\n```acl\n" + "\n".join(lines) + "\n```\n"


_RIGHTS_TAIL = """\
The part in brackets is a selector: it holds for the keys of rq. If `jobs_redis_url` names another
server, a jobs worker needs the rights of the operator on the server of the fleet, and the selector
on the other one. Whoever may write these keys can have a step of a roll tried at any time, and
nothing else: a jobs worker runs no other function, and reads JSON alone.
"""


_EVENTS_HEAD = """\
# Events

Generated from the table in `service/events.py` by `make docs`; do not edit. Every event is counted
under its name and logged at its level with exactly these fields. A *lane* is one version of a model
on one worker.

| event | level | fields | meaning |
|---|---|---|---|
"""


def catalogue_markdown() -> str:
    """The text of `docs/events.md`."""
    return _EVENTS_HEAD + "".join(_markdown_row(name, row) for name, row in sorted(EVENTS.items()))


def _markdown_row(name: str, row: EventRow) -> str:
    fields = ", ".join(f"`{field}`" for field in row.fields) or "–"
    return f"| `{name}` | {row.level} | {fields} | {row.meaning} |\n"


def states_markdown() -> str:
    """The whole of `docs/states.md`: diagram and tables, drawn from `TRANSITIONS`."""
    arrows = [
        (state, event, following)
        for state, row in TRANSITIONS.items()
        for event, following in row.items()
    ]
    lines = [
        "# States of a request",
        "",
        "Generated from `wire/states.py` by `make docs`; do not edit. What each state guarantees",
        "is in [protocol.md](protocol.md).",
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {State.UNKNOWN.value}",
        *(f"    {state.value} --> {to.value}: {event.value}" for state, event, to in arrows),
        *(f"    {state.value} --> [*]" for state in TRANSITIONS if state in TERMINAL),
        "```",
        "",
        "| state | terminal | meaning |",
        "|---|---|---|",
        *(f"| `{s.value}` | {_yes(s in TERMINAL)} | {MEANINGS[s]} |" for s in State),
        "",
        "| from | event | to | what happens |",
        "|---|---|---|---|",
        *(f"| `{s.value}` | `{e.value}` | `{to.value}` | {MEANINGS[e]} |" for s, e, to in arrows),
    ]
    return "\n".join(lines) + "\n"


def _yes(value: bool) -> str:  # noqa: FBT001 - a cell of a table
    return "yes" if value else "no"
