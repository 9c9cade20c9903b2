"""No script and no failpoint without a crash test: seen by each run, not only by those of the crash suite itself."""

from __future__ import annotations

from tests.faults.crash.test_points import unstruck


def test_a_crash_test_strikes_each_script_and_each_failpoint() -> None:
    missing, unknown = unstruck()
    assert not missing, (
        f"no crash test strikes {sorted(missing)}: add a worker's to tests/faults/crash/matrix.py, others to a test_*.py beside it"
    )
    assert not unknown, f"there is no such place any more: {sorted(unknown)}"
