"""What code declares: each case in a process of its own, since a module declares but once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.architecture.source import ROOT


@dataclass
class Found:
    entries: dict[str, dict[str, object]]
    faults: dict[str, str]
    broken: dict[str, str]
    traces: dict[str, str]


Declare = Callable[..., Found]
_COLLECT = """
import json, sys
from fusion.cron.declared import collect
modules, tasks = json.loads(sys.argv[1])
found = collect(modules, tasks)
entries = {name: {"when": entry.plan.text, **json.loads(entry.spec())} for name, entry in found.entries.items()}
print(json.dumps([entries, found.faults, found.broken, found.traces]))
"""


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    """`declare({"shop": source}, tasks=["jobs"])`: what is collected from these modules, all of them named unless `modules` says which."""

    def run(sources: dict[str, str], *, modules: list[str] | None = None, tasks: tuple[str, ...] = ()) -> Found:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        named = [name for name in sources if name not in tasks] if modules is None else modules
        command = [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{_COLLECT}",
            json.dumps([named, tasks]),
        ]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        return Found(*json.loads(ended.stdout.splitlines()[-1]))

    return run


REGISTER = """
    def register(scheduler):
        scheduler.cron("30 2 * * *", "jobs.report", id="report", timezone="Europe/Berlin", args=(30,))
        scheduler.every("5m", "jobs.ping", id="ping", queue="low", overlap="skip")
"""
RECURRING = """
    from fusion.kernel.recurrence import recurring

    @recurring("*/5 * * * *", queue="low", kwargs={"n": 1})
    @recurring(every="90s", id="often")
    def sweep(n=0):
        return n
"""


@pytest.mark.long
def test_a_function_that_registers(declare: Declare) -> None:
    found = declare({"shop": REGISTER})
    assert {name: entry["when"] for name, entry in found.entries.items()} == {
        "report": "30 2 * * * Europe/Berlin",
        "ping": "every 5m",
    }
    assert (found.entries["ping"]["func"], found.entries["ping"]["queue"], found.entries["ping"]["overlap"]) == (
        "jobs.ping",
        "low",
        "skip",
    )
    assert (found.faults, found.broken, found.traces) == ({}, {}, {})


def test_a_recurring_function(declare: Declare) -> None:
    found = declare({"shop": RECURRING})
    assert {name: entry["when"] for name, entry in found.entries.items()} == {
        "shop-sweep": "*/5 * * * * UTC",
        "often": "every 90s",
    }
    assert {entry["func"] for entry in found.entries.values()} == {"shop.sweep"}
    assert found.entries["shop-sweep"]["queue"] == "low"


@pytest.mark.long
def test_the_functions_of_task_modules_recur_but_they_do_not_register(declare: Declare) -> None:
    found = declare({"jobs": RECURRING + REGISTER}, tasks=("jobs",))
    assert sorted(found.entries) == ["jobs-sweep", "often"]
    both = declare({"jobs": RECURRING + REGISTER}, modules=["jobs"], tasks=("jobs",))
    assert sorted(both.entries) == ["jobs-sweep", "often", "ping", "report"]
    assert both.faults == {}, "loaded once, though named twice"


_SYNTAX_ERROR = "def f(:"
_BROKEN = {
    "import nothing_of_that_name": "ModuleNotFoundError: No module named 'nothing_of_that_name'",
    "1 / 0": "ZeroDivisionError: division by zero",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "def register(scheduler): raise OSError('no file')": "OSError: no file",
    _SYNTAX_ERROR: "SyntaxError: invalid syntax (bad4.py, line 1)",
}


@pytest.mark.long
def test_broken_modules_do_not_keep_the_others_away(declare: Declare) -> None:
    bad = {f"bad{n}": source for n, source in enumerate(_BROKEN)}
    found = declare({**bad, "shop": REGISTER})
    assert found.broken == {name: _BROKEN[source] for name, source in bad.items()}
    assert sorted(found.entries) == ["ping", "report"]
    for name, source in bad.items():
        said = found.traces[name].splitlines()
        if source != _SYNTAX_ERROR:
            assert re.search(rf'File ".*/{name}\.py", line 1, in ', said[1]), "the first line is the module's own"
            assert said[-1] == _BROKEN[source]


def test_a_module_that_there_is_not_has_no_trace(declare: Declare) -> None:
    found = declare({}, modules=["nowhere"])
    assert (found.broken, found.traces) == ({"nowhere": "ModuleNotFoundError: No module named 'nowhere'"}, {"nowhere": ""})


def test_entries_declared_before_a_module_broke_count(declare: Declare) -> None:
    found = declare({"bad": RECURRING + "\n    1 / 0\n"})
    assert sorted(found.entries) == ["bad-sweep", "often"]
    assert list(found.broken) == ["bad"]


_MISTAKES = {
    'cron("61 * * * *", "a.b", id="{}")': "'61' is not a valid minute",
    'cron("* * * * *", "a.b", id="{}", timezone="Mars")': "timezone='Mars' is not known here",
    'cron("* * * * *", "a.b", id="{}", qeue="x")': "qeue= is not an option",
    'every("soon", "a.b", id="{}")': "'soon' is not a duration",
    'cron("* * * * *", "a.b", id="{}", args=(object(),))': "object",
    'every(60, "a.b", id="{0}"); scheduler.every(90, "a.b", id="{0}")': "it is declared twice; give each an id= of its own",
}


def test_a_mistake_in_one_entry_is_its_own(declare: Declare) -> None:
    calls = "".join(f"    scheduler.{call.format(f'wrong{n}')}\n" for n, call in enumerate(_MISTAKES))
    found = declare({"shop": f"def register(scheduler):\n{calls}    scheduler.every(60, 'a.b', id='right')\n"})
    assert list(found.entries) == ["right"]
    assert sorted(found.faults) == [f"wrong{n}" for n in range(len(_MISTAKES))]
    for n, why in enumerate(_MISTAKES.values()):
        assert why in found.faults[f"wrong{n}"]
    assert found.broken == {}


def test_a_mistake_in_one_recurring_function_is_its_own(declare: Declare) -> None:
    found = declare(
        {
            "shop": """
            from fusion.kernel.recurrence import recurring

            @recurring("61 * * * *")
            def wrong(): pass

            @recurring(every=60, no_such_option=1)
            def worse(): pass

            @recurring(every=60)
            def right(): pass

            def make():
                @recurring(every=60)
                def inner(): pass
            make()
            """
        }
    )
    assert list(found.entries) == ["shop-right"]
    assert "'61' is not a valid minute" in found.faults["shop-wrong"]
    assert "no_such_option= is not an option" in found.faults["shop-worse"]
    assert len(found.faults) == 3
    (inner,) = (why for name, why in found.faults.items() if "inner" in name)
    assert "is defined inside a function" in inner


def test_an_entry_declared_in_two_modules_runs_as_neither(declare: Declare) -> None:
    found = declare({"one": REGISTER, "two": REGISTER})
    assert found.entries == {}
    assert set(found.faults) == {"ping", "report"}


# -- the decorator


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("call", ["recurring(f)", "recurring()(f)", "recurring('* * * * *', every=60)(f)"])
def test_recurring_needs_one_of_expression_and_interval(call: str) -> None:
    ended = python(f"from fusion.kernel.recurrence import recurring\ndef f(): pass\n{call}")
    assert 'write @recurring("*/5 * * * *") or @recurring(every="5m"), with one of the two' in ended.stderr


def test_recurring_leaves_the_function_as_it_is_and_costs_a_task_module_next_to_nothing() -> None:
    heavy = "('redis', 'hiredis', 'croniter', 'asyncio', 'click', 'requests', 'typing', 'zoneinfo', 'datetime', 'json', 'fusion.cron')"
    ended = python(
        "import sys; before = set(sys.modules)\n"
        "from fusion.kernel.recurrence import declared, recurring\n"
        "def f(): return 7\n"
        "assert recurring(every='5m', id='x')(f) is f and f() == 7\n"
        "(one,) = declared()\n"
        "assert (one.func, one.expr, one.every, one.options) == (f, None, '5m', {'id': 'x'})\n"
        f"print([name for name in {heavy} if name in sys.modules and name not in before])"
    )
    assert ended.stdout.strip() == "[]", ended.stderr
