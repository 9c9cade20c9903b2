"""Settings: defaults, the environment, and one clear line for what is not valid."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from fusion.exceptions import ConfigurationError
from fusion.inprocess import JobQueueManager, ManagerSettings, MemoryPlan
from fusion.settings import Settings
from tests.architecture.source import ROOT
from tests.inprocess.hands import HandClock, Witness
from tests.kit.waiting import eventually

DEFAULTS = {
    "MASTER_FETCH_INTERVAL_SECONDS": 60,
    "MASTER_GRACE_PERIOD_SECONDS": 15,
    "WORKER_STAGGER_SECONDS": 1,
    "WORKER_COOLDOWN_SECONDS": 10,
    "WORKER_SINGLE_JOB_MODE": True,
    "JOB_TIMEOUT_SECONDS": 3600,
    "JOB_TIMEOUT_GRACE_SECONDS": 10,
    "MEMORY_THROTTLE_THRESHOLD": 90,
    "MEMORY_RESUME_THRESHOLD": 80,
    "GPU_THROTTLE_THRESHOLD": 85,
    "GPU_RESUME_THRESHOLD": 75,
    "SWAP_THRESHOLD": 70,
    "MEMORY_CHECK_INTERVAL": 5,
}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DEFAULTS:
        monkeypatch.delenv(name, raising=False)


def test_defaults() -> None:
    assert {name.upper(): value for name, value in vars(ManagerSettings()).items()} == DEFAULTS


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.parametrize("prefix", ["", "FUSION_"])
def test_each_is_read_from_the_environment_unless_it_is_given(name: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, value, given = ("false", False, True) if name == "WORKER_SINGLE_JOB_MODE" else ("83", 83, 82)
    monkeypatch.setenv("MEMORY_RESUME_THRESHOLD", "10")
    monkeypatch.setenv("GPU_RESUME_THRESHOLD", "10")
    monkeypatch.setenv(prefix + name, text)
    assert getattr(ManagerSettings(), name.lower()) == value
    assert getattr(ManagerSettings(**{name.lower(): given}), name.lower()) == given


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("WORKER_STAGGER_SECONDS", "soon", "use seconds, or 30s, 5m, 2h, 1d; from 0 to"),
        ("MASTER_GRACE_PERIOD_SECONDS", "-1", "use seconds, or 30s"),
        ("WORKER_SINGLE_JOB_MODE", "perhaps", "use true or false"),
        ("MEMORY_THROTTLE_THRESHOLD", "120", "use a percentage above 0 and up to 100"),
        ("MEMORY_CHECK_INTERVAL", "0", "use seconds"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable(name: str, text: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigurationError) as error:
        ManagerSettings()
    said = str(error.value)
    assert said.startswith(f"environment variable {name} = {text!r} is not valid: {rule}")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"worker_cooldown_seconds": "x"}, "setting worker_cooldown_seconds = 'x' is not valid: use seconds"),
        (
            {"memory_resume_threshold": 95},
            "setting memory_resume_threshold = 95 (MEMORY_RESUME_THRESHOLD in the environment) is not valid: use at most memory_throttle_thr",
        ),
        ({"gpu_throttle_threshold": 50}, "setting gpu_resume_threshold = 75"),
    ],
)
def test_wrong_arguments_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        ManagerSettings(**values)
    assert str(error.value).startswith(says)


def test_the_throttle_has_the_defaults_that_workers_have() -> None:
    mine, theirs = ManagerSettings(), Settings()
    names = {item.name for item in fields(ManagerSettings)} & {item.name for item in fields(Settings)}
    assert len(names) == 6
    assert {name: getattr(mine, name) for name in names} == {name: getattr(theirs, name) for name in names}


@pytest.mark.parametrize(("kind", "stop", "resume"), [("RAM", 90.0, 80.0), ("GPU", 85.0, 75.0), ("swap", 70.0, 65.0)])
def test_each_kind_of_memory_has_thresholds_of_its_own(kind: str, stop: float, resume: float) -> None:
    clock, used, looks = HandClock(), [stop - 0.1], list[float]()

    def look() -> float:
        looks.append(used[0])
        return used[0]

    readers = {**dict.fromkeys(("RAM", "GPU", "swap"), lambda: 1.0), kind: look}
    manager = JobQueueManager(MemoryPlan(), 1, settings=ManagerSettings(), clock=clock, memory_readers=readers)
    witness = Witness(manager)
    with manager:
        for n, reading in enumerate((stop - 0.1, stop, resume + 0.1, resume, stop), 1):
            eventually(lambda n=n: len(looks) >= n)
            used[0] = reading
            clock.advance(5)
        witness.await_kind("throttled", 2)
    assert [event.kind for event in witness.events if event.kind in ("throttled", "released")] == [
        "throttled",
        "released",
        "throttled",
    ]
    assert looks == [stop - 0.1, stop - 0.1, stop, resume + 0.1, resume, stop]


def test_the_page_names_each_setting_with_its_default() -> None:
    page = (Path(ROOT) / "docs" / "inprocess.md").read_text()
    for item in fields(ManagerSettings):
        default = item.metadata["default"]
        shown = str(default).lower() if isinstance(default, bool) else f"{default:g}"
        assert item.default is MISSING
        assert f"| `{item.name.upper()}` | {shown} |" in page, item.name
