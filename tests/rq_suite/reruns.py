"""Tests of RQ's that failed are run again by the rule of `tests/kit/flaky.py`: alone, five times, five tests at most."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from tests.kit import flaky

Name = tuple[str, str, str]


def forgiven(failed: dict[Name, str], runs_alone: Callable[[Name], bool]) -> set[Name]:
    """Return those of the `failed` tests, each with its error, that pass five times alone; print why, and a FLAKY line for each."""
    if len(failed) > flaky.MAX_FAILURES:
        print(f"{len(failed)} tests of the floor failed: {flaky.MAX_FAILURES} at most are run again")
        return set()
    causes = {entry.name: entry.cause for entry in flaky.entries()}
    found = set[Name]()
    for name, why in sorted(failed.items()):
        title = "tests/rq_suite:" + "::".join(part for part in name if part)
        if not causes.get(title, "unlisted"):
            print(f"{title} is in {flaky.LIST.name} without a cause, and failed again: find the cause first")
        elif again := next((nth for nth in range(1, flaky.RERUNS + 1) if not runs_alone(name)), 0):
            print(f"{title} failed ({why}), and failed again alone (run {again} of {flaky.RERUNS})")
        else:
            print(f"FLAKY {title}: it failed, and passed {flaky.RERUNS} times alone. Its first failure: {why}")
            print(f"For tests/{flaky.LIST.name}:\n\n{flaky.toml_entry(title, why, datetime.now(timezone.utc).date())}")
            if trouble := flaky.log_forgiven(title, why):
                print(trouble)
            found.add(name)
    return found
