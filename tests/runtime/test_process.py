"""The life of a process: its phases, what moves them on, in which order it begins, works and closes. Redis is not asked."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from math import inf

import pytest

from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Phase, Process
from fusion.settings import Settings

LOG = logging.getLogger("process")
S, R, D, K, E = Phase.STARTING, Phase.RUNNING, Phase.DRAINING, Phase.KILLING, Phase.ENDED


class Kind(Process):
    """Ends after `rounds`, or on request, and notes what is asked of it."""

    def __init__(self, rounds: int = 3, boot_error: Exception | None = None) -> None:
        super().__init__(Settings(redis_url="redis://localhost:1"), LOG, "all goes on")
        self.rounds, self.boot_error = rounds, boot_error
        self.calls: list[str] = []
        self.phases: list[Phase] = []
        self.closing.callback(self.calls.append, "close first part")
        self.closing.callback(self.calls.append, "close second part")

    def boot(self) -> None:
        self.calls.append("boot")
        self.phases.append(self.phase)
        if self.boot_error:
            raise self.boot_error

    def due(self, now: float) -> None:
        self.calls.append("due")
        self.phases.append(self.phase)
        self.rounds -= 1
        if not self.rounds:
            self.drain("it has had its rounds")
        self.timers.at(0.0, print)  # so that the loop does not sleep

    def end(self) -> int:
        self.calls.append("end")
        self.phases.append(self.phase)
        return 7

    def status(self) -> tuple[str, bool]:
        return "idle", True

    def live(self) -> HealthReport:
        return HealthReport()

    def ready(self) -> HealthReport:
        return HealthReport()


@pytest.fixture(autouse=True)
def _no_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.runtime.process.check_server", lambda *args, **options: None)


@pytest.fixture
def kind() -> Iterator[Kind]:
    made = Kind()
    yield made
    made.closing.close()


@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_life(rounds: int) -> None:
    kind = Kind(rounds)
    assert kind.phase is S
    assert kind.run() == 7
    assert kind.calls == ["boot", *["due"] * rounds, "end", "close second part", "close first part"]
    assert kind.phases == [S, *[R] * rounds, D]
    assert kind.phase is E


def test_opened_parts_are_closed_when_the_start_fails() -> None:
    kind = Kind(boot_error=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        kind.run()
    assert kind.calls == ["boot", "close second part", "close first part"]


@pytest.mark.parametrize(
    ("stops", "quit_", "released", "impatient", "phase"),
    [
        (0, False, False, False, R),
        (1, False, False, False, D),
        (2, False, False, False, K),
        (3, False, False, False, K),
        (0, True, False, False, K),
        (1, True, False, False, K),
        (0, False, True, False, D),
        (0, False, True, True, K),
        (1, False, True, False, D),
        (2, False, True, False, K),
    ],
)
def test_signals_and_the_supervisor_set_the_phase(
    kind: Kind, stops: int, quit_: bool, released: bool, impatient: bool, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind.phase = R
    kind.signals.stops, kind.signals.quit = stops, quit_
    if released:
        kind.supervisor._patience = -3.0 if impatient else inf
        kind.supervisor._release()
    kind.obey()
    assert kind.phase is phase


@pytest.mark.parametrize("before", list(Phase))
@pytest.mark.parametrize(("act", "least"), [("drain", D), ("kill", K)])
def test_a_phase_only_moves_on(kind: Kind, before: Phase, act: str, least: Phase) -> None:
    kind.phase = before
    if act == "drain":
        kind.drain("x")
    else:
        kind.kill()
    assert kind.phase == max(before, least)


def test_told_to_end_before_its_first_round_it_does_nothing() -> None:
    kind = Kind()
    kind.signals._note(signal.SIGTERM, None)
    kind.run()
    assert "due" not in kind.calls
    assert kind.phases == [S, D]


def test_timers_run_before_the_round_does_what_is_due() -> None:
    kind = Kind(2)
    kind.timers.every(1000.0, lambda now: kind.calls.append("timer"))
    kind.run()
    assert kind.calls[:4] == ["boot", "timer", "due", "due"]
