"""The rules of style, held against the whole tree. An exception is a row with its reason."""

import ast
from functools import cache
from pathlib import Path

import pytest
from support.style import (
    Finding,
    Source,
    find_empty_tests,
    find_handlers,
    find_machine_paths,
    find_package_imports,
    find_sizes,
    find_unsafe,
    find_uses,
    read_source,
)

ROOT = Path(__file__).parents[2]
PACKAGE = (
    "broker",
    "consumer",
    "models",
    "ops",
    "producer",
    "router",
    "service",
    "testing",
    "wire",
)
OTHER = ("tests", "benchmarks")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".lua", ".yaml", ".yml", ".json", ".cfg", ".conf"}
TEXT_NAMES = {"Makefile", "run"}

CLOCK_AND_CHANCE = frozenset(
    {"time.time", "time.sleep", "asyncio.sleep", "random.", "os.environ", "os.getenv"}
)

SERVER_SEARCHES = frozenset(
    {
        "shutil.which",
        "batchfleet.broker.embedded.find_server",
        "batchfleet.broker.embedded.embedded_options",
    }
)

# (file, finding) → reason. An entry that excuses nothing fails as well.
ALLOWED = {
    ("broker/embedded.py", "os.environ"): "BATCHFLEET_REDIS_SERVER is a tool's, not a setting",
    ("consumer/link/link.py", "os.environ"): "hands what is harmless to the process it starts",
    ("models/runtimes/faults.py", "time.sleep"): "stands for time that a model takes",
    ("producer/target.py", "os.environ"): "finds the server for a client that was told none",
    ("ops/cli/__init__.py", "os.environ"): "NO_COLOR and TERM are the terminal's, not settings",
    ("ops/cli/_shared/options.py", "os.environ"): "hands the environment to load_settings",
    ("tests/conftest.py", "os.environ"): "reads which server to test on, and hides the rest",
    ("tests/acceptance/measuring/kept_secrets.py", "os.environ"): "hands it to what it starts",
    ("tests/documents/redis_cli.py", "os.environ"): "REDISCLI_AUTH, as the real one has it",
    ("tests/mutants/__main__.py", "os.environ"): "hands the environment to the tests it starts",
    ("tests/support/hostile_models.py", "os.environ"): "a model that empties its environment",
    ("tests/unit/models/conftest.py", "os.environ"): "BATCHFLEET_TEST_STORE keeps models",
    ("tests/unit/test_threats.py", "import of pickle"): "what a caller may send to have it run",
    ("tests/unit/test_pickling.py", "import of pickle"): "tests what users' processes do",
    ("tests/integration/server/test_support.py", "os.environ"): "tests that conftest hid the rest",
}


def python_files(*folders):
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def sources(*folders):
    paths = python_files(*folders)
    if folders == PACKAGE:
        paths.append(ROOT / "__init__.py")
    return [read_source(ROOT, path) for path in paths]


def check_findings(findings):
    """Nothing is found but what is allowed."""
    unexcused = [str(found) for found in findings if (found.path, found.what) not in ALLOWED]
    assert not unexcused, "\n".join(unexcused)


@pytest.mark.parametrize("find", [find_sizes, find_handlers, find_unsafe])
def test_rule_for_all_code(find):
    check_findings(found for source in sources(*PACKAGE, *OTHER) for found in find(source))


def test_time_chance_and_environment_have_owners():
    check_findings(
        found
        for source in sources(*PACKAGE, *OTHER)
        for found in find_uses(source, CLOCK_AND_CHANCE)
    )


def test_one_place_of_the_tests_looks_for_server_programs():
    """A machine may lack `redis-server`: every other test asks there, and is skipped or told."""
    check_findings(
        found
        for source in sources("tests")
        if source.path != "tests/support/server.py"
        for found in find_uses(source, SERVER_SEARCHES)
    )


def test_only_the_clock_calls_time():
    banned = frozenset({"time."})
    check_findings(
        found
        for source in sources(*PACKAGE)
        if source.path != "service/clock.py"
        for found in find_uses(source, banned)
    )


def test_the_package_imports_itself_relatively():
    check_findings(found for source in sources(*PACKAGE) for found in find_package_imports(source))


def test_every_test_can_fail():
    tests = [s for s in sources("tests") if Path(s.path).name.startswith("test_")]
    assert len(tests) > 5
    check_findings(found for source in tests for found in find_empty_tests(source))


def test_every_folder_of_the_package_has_a_link():
    entries = (ROOT / "namespace" / "batchfleet").iterdir()
    links = {path.name: path.resolve() for path in entries if path.name != "__pycache__"}
    folders = {path.parent.name for path in ROOT.glob("[a-z]*/__init__.py")}
    assert folders == set(PACKAGE)
    assert links == {name: ROOT / name for name in {*PACKAGE, "__init__.py", "py.typed"}}
    assert [folder for folder in python_files(*PACKAGE) if _lacks_init(folder)] == []


def _lacks_init(path):
    return not (path.parent / "__init__.py").is_file()


def test_no_path_of_a_machine():
    files = [
        path
        for folder in (*PACKAGE, *OTHER, "docs", "compose", ".ci")
        for path in (ROOT / folder).rglob("*")
    ]
    texts = [
        path
        for path in [*files, *ROOT.iterdir()]
        if path.is_file() and (path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES)
    ]
    check_findings(
        found
        for path in texts
        for found in find_machine_paths(
            path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        )
    )


def test_no_allowance_is_stale():
    finders = (find_sizes, find_handlers, find_unsafe)
    banned = frozenset({*CLOCK_AND_CHANCE, "time."})
    found = {
        (one.path, one.what)
        for source in sources(*PACKAGE, *OTHER)
        for findings in (*(find(source) for find in finders), find_uses(source, banned))
        for one in findings
    }
    assert ALLOWED.keys() - found == set()


LONG = "def long():\n" + "    x = 1\n" * 60


@pytest.mark.parametrize(
    ("find", "code", "what"),
    [
        (find_sizes, LONG, "long is too long"),
        (find_sizes, "x = 1\n" * 451, "long file"),
        (find_sizes, "x = 1\n" * 601, "far too long file"),
        (find_sizes, "def f(a, b, c, d, e, *, g, h): ...", "f has too many parameters"),
        (find_handlers, "def f():\n try: g()\n except: raise", "bare except in f"),
        (find_handlers, "try: g()\nexcept (OSError, Exception): pass", "broad except in the file"),
        (
            find_handlers,
            "try: g()\nexcept Exception:  # noqa: BLE001\n pass",
            "broad except in the file",
        ),
        (find_unsafe, "import pickle", "import of pickle"),
        (find_unsafe, "from marshal import loads", "import of marshal"),
        (find_unsafe, "import torch as t\nt.load(f)", "call of torch.load"),
        (find_unsafe, "eval('1')", "call of eval"),
        (find_unsafe, "run('ls', shell=True)", "shell=True"),
        (
            find_package_imports,
            "from batchfleet.wire import codec",
            "absolute import of the package",
        ),
        (find_empty_tests, "def helper(): assert True", "no test in a test file"),
        (find_empty_tests, "def test_x(): compute()", "test_x asserts nothing"),
    ],
)
def test_rules_find_what_they_are_for(find, code, what):
    assert [found.what for found in find(source_of(code))] == [what]


@pytest.mark.parametrize(
    ("find", "code"),
    [
        (find_sizes, "class A:\n def f(self, a, b, c, d, e, g): ..."),
        (find_sizes, "class A:\n def __init__(self, *, a, b, c, d, e, f, g): ..."),
        (find_handlers, "try: g()\nexcept Exception as e: raise ValueError from e"),
        (find_handlers, "try: g()\nexcept Exception:  # noqa: BLE001  told to its owner\n pass"),
        (find_unsafe, "model.eval(); re.compile('x'); run('ls', shell=False)"),
        (find_package_imports, "from ..wire import codec"),
        (find_empty_tests, "def test_x():\n  with pytest.raises(OSError): f()"),
        (find_empty_tests, "def test_x(): np.testing.assert_allclose(a, b)"),
    ],
)
def test_rules_let_pass_what_is_fine(find, code):
    assert list(find(source_of(code))) == []


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("import time\ntime.sleep(1)", ["time.sleep"]),
        ("import time as t\nt.time()", ["time.time"]),
        ("from asyncio import sleep\nsleep(1)", ["asyncio.sleep"]),
        ("import os\nos.environ['x']", ["os.environ"]),
        ("import random\nrandom.choice([1])", ["random.choice"]),
        ("import random\nrandom.Random(1).choice([1])", []),
        ("import numpy\nnumpy.random.default_rng(1)", []),
        ("'time.sleep(1)'  # time.sleep", []),
    ],
)
def test_uses_are_found_however_imported(code, used):
    assert [found.what for found in find_uses(source_of(code), CLOCK_AND_CHANCE)] == used


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("cd /" + "home/anna/fleet", True),
        ("open('/" + "work/main/x')", True),
        ("see docs/work/plan.md and https://example.org/home/x", False),
        ("/usr/bin/env /tmp/x", False),
    ],
)
def test_machine_paths_are_found(line, found):
    assert bool(list(find_machine_paths("x", line))) is found


def source_of(code):
    return Source("x.py", code + "\n" if not code.endswith("\n") else code, ast.parse(code))


def test_findings_read_like_a_compiler():
    assert str(Finding("a.py", "bare except in f", 3)) == "a.py:3: bare except in f"
