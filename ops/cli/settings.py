"""`batchfleet settings`."""

from typing import Any

import click

from ...service.settings import SETTING_ROWS
from ..model_limits import LimitInForce, limits_in_force
from ._shared.connecting import connected
from ._shared.options import Loaded, examples, json_option, settings_of, with_settings
from ._shared.output import make_table, print_json, print_table, say


@click.command()
@with_settings(*settings_of("up"))
@click.option("--model", metavar="NAME", help="Show the limits of this deployed model instead.")
@json_option
@examples(
    "batchfleet settings",
    "batchfleet settings --json",
    "batchfleet settings --model minilm",
)
def settings(loaded: Loaded, *, model: str | None, as_json: bool) -> None:
    """Show all settings and the origin of each value.

    A flag overrides an environment variable, which overrides the TOML file, which overrides the
    default. With --model, show the limits of a deployed model: the manifest's and the operator's.
    """
    if model is not None:
        with connected(loaded.settings) as operator:
            limits = limits_in_force(model, operator.deploy_hash(model))
        _show_limits(model, limits, as_json=as_json)
    elif as_json:
        print_json({name: _setting_json(loaded, name) for name in SETTING_ROWS})
    else:
        _show_settings(loaded)


def _setting_json(loaded: Loaded, name: str) -> dict[str, Any]:
    row = SETTING_ROWS[name]
    value = getattr(loaded.settings, name)
    return {
        "meaning": row.meaning,
        "default": row.default,
        "value": row.shown(value) if row.secret else value,
        "origin": loaded.origins[name],
        "flag": row.flag,
        "variable": row.variable,
        "programs": list(row.programs),
    }


def _show_settings(loaded: Loaded) -> None:
    table = make_table(None, "setting", "value", "origin", "default", "meaning", "read by")
    for name, row in SETTING_ROWS.items():
        value = row.shown(getattr(loaded.settings, name))
        programs = ", ".join(row.programs) or "all"
        table.add_row(
            name, value, loaded.origins[name], row.shown(row.default), row.meaning, programs
        )
    print_table(table)
    say("flag --lease-ms = variable BATCHFLEET_LEASE_MS = lease_ms in the TOML file")


def _show_limits(model: str, limits: list[LimitInForce], *, as_json: bool) -> None:
    if as_json:
        print_json({"model": model, "limits": {limit.name: limit.to_json() for limit in limits}})
        return
    table = make_table(
        f"limits of {model}", "limit", ">manifest", ">override", ">effective", "meaning"
    )
    for limit in limits:
        override = "" if limit.override is None else _shown(limit.override)
        table.add_row(
            limit.name, _shown(limit.manifest), override, _shown(limit.in_force), limit.meaning
        )
    print_table(table)
    say(f"`batchfleet deploy set {model} LIMIT=VALUE` overrides it, `LIMIT=` removes the override")


def _shown(value: Any) -> str:
    return ",".join(str(edge) for edge in value) if isinstance(value, list) else str(value)
