"""No script and no failpoint without a crash test that the gate runs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.collected import collected
from tests.architecture.source import ROOT, modules

#: The names by which the sources ask for them: `failpoint("...")`, and `_script("...")` twice.
_NAMED = re.compile(r'failpoint\("([a-z_.]+)"\)')
_CRASH = [*modules("tests/faults/crash"), Path("tests/courier/test_kills.py")]


def _there_are() -> set[str]:
    named = {name for path in modules("fusion") for name in _NAMED.findall((ROOT / path).read_text())}
    scripts = {file.stem for file in (ROOT / "fusion/store/lua").glob("*.lua")}
    return named | {f"{script}.{side}" for script in scripts for side in ("before", "after")}


def test_a_crash_test_of_the_gate_strikes_each_script_and_each_failpoint() -> None:
    cases = collected([path for path in _CRASH if path.name.startswith("test_")])
    struck = {place for case in cases for place in case.places}
    missing = _there_are() - {place for case in cases if case.in_gate for place in case.places}
    assert not missing, (
        f"no crash test of the gate strikes {sorted(missing)}: add a worker's to tests/faults/crash/matrix.py, others to a "
        "test_*.py beside it, as a gate_case"
    )
    assert not struck - _there_are(), "there is no such place any more"
