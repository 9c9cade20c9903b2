"""The memory throttle's decisions, and what it reads of a machine: files as Linux writes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from fusion.exceptions import ConfigurationError
from fusion.kernel.memory import Bound, MemoryThrottle, NvidiaSmi, Reader, machine_readers, ram, swap
from fusion.settings import Settings
from tests.kit.waiting import eventually


def series(*readings: float | None) -> Reader:
    """A reader that gives these, one a call."""
    rest = iter(readings)
    return lambda: next(rest)


def throttle(**readers: Reader) -> MemoryThrottle:
    limits = {"RAM": (90, 80), "swap": (70, 65), "GPU": (85, 75)}
    return MemoryThrottle([Bound(name, *limits[name], read) for name, read in readers.items()], 5)


def test_it_stops_at_its_limit_and_goes_on_well_below() -> None:
    memory = throttle(RAM=series(89.9, 90.0, 92.14, 85, 80.1, 80, 89, 90.04))
    said = [(memory.check(at), memory.active) for at in range(8)]
    assert said == [
        ("", ""),
        ("MEMORY THROTTLE ACTIVE: RAM 90.0 % (limit 90 %)", "RAM 90.0 %"),
        ("", "RAM 92.1 %"),
        ("", "RAM 85.0 %"),
        ("", "RAM 80.1 %"),
        ("MEMORY THROTTLE RELEASED", ""),
        ("", ""),
        ("MEMORY THROTTLE ACTIVE: RAM 90.0 % (limit 90 %)", "RAM 90.0 %"),
    ]


def test_each_kind_is_held_by_its_own_figures() -> None:
    memory = throttle(RAM=series(95, 79, 50, 50), swap=series(68, 68, 71, 64), GPU=series(None, 80, None, None))
    assert memory.check(0) == "MEMORY THROTTLE ACTIVE: RAM 95.0 % (limit 90 %)"
    assert memory.check(5) == "MEMORY THROTTLE RELEASED"  # swap at 68 and GPU at 80 never reached their limits
    assert memory.check(10) == "MEMORY THROTTLE ACTIVE: swap 71.0 % (limit 70 %)"
    assert memory.check(15) == "MEMORY THROTTLE RELEASED"


def test_a_second_kind_takes_over_without_a_release() -> None:
    memory = throttle(RAM=series(91, 95, 70, 70), GPU=series(10, 86, 80, 75))
    assert [memory.check(0), memory.active] == ["MEMORY THROTTLE ACTIVE: RAM 91.0 % (limit 90 %)", "RAM 91.0 %"]
    assert [memory.check(5), memory.active] == ["", "RAM 95.0 %, GPU 86.0 %"]
    assert [memory.check(10), memory.active] == ["", "GPU 80.0 %"]
    assert [memory.check(15), memory.active] == ["MEMORY THROTTLE RELEASED", ""]


def test_an_unreadable_value_releases_the_throttle() -> None:
    memory = throttle(RAM=series(99, None))
    memory.check(0)
    assert memory.check(5) == "MEMORY THROTTLE RELEASED"


def test_a_reading_that_is_no_number_changes_nothing() -> None:
    nan = float("nan")
    memory = throttle(RAM=series(nan, 95, nan, 85, 79))
    assert [memory.check(at) for at in range(5)] == [
        "",
        "MEMORY THROTTLE ACTIVE: RAM 95.0 % (limit 90 %)",
        "",
        "",
        "MEMORY THROTTLE RELEASED",
    ]


def test_the_interval() -> None:
    memory = throttle(RAM=lambda: 1.0)
    assert memory.next_at == 0
    memory.check(100)
    assert memory.next_at == 105


def test_figures_come_from_the_settings_by_either_name() -> None:
    env = {"MEMORY_THROTTLE_THRESHOLD": "60", "FUSION_MEMORY_RESUME_THRESHOLD": "50 %", "SWAP_THRESHOLD": "20"}
    env |= {"MEMORY_CHECK_INTERVAL": "2", "GPU_THROTTLE_THRESHOLD": "30", "GPU_RESUME_THRESHOLD": "29.5"}
    settings = Settings.load(env=env)
    assert settings.memory_throttle is False
    memory = MemoryThrottle.of(settings, {"RAM": series(60, 51, 50), "swap": series(1, 20, 15), "GPU": series(29.9, 30, 29.4)})
    assert memory.check(0) == "MEMORY THROTTLE ACTIVE: RAM 60.0 % (limit 60 %)"
    assert memory.next_at == 2
    memory.check(2)
    assert memory.active == "RAM 51.0 %, swap 20.0 %, GPU 30.0 %"
    assert memory.check(4) == "MEMORY THROTTLE RELEASED"


def test_defaults() -> None:
    s = Settings()
    assert (s.memory_throttle_threshold, s.memory_resume_threshold, s.swap_threshold) == (90, 80, 70)
    assert (s.gpu_throttle_threshold, s.gpu_resume_threshold, s.memory_check_interval) == (85, 75, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory_resume_threshold": 91},
        {"gpu_resume_threshold": 86},
        {"swap_threshold": 0},
        {"memory_throttle_threshold": 101},
        {"memory_throttle_threshold": "much"},
    ],
)
def test_figures_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=rf"setting {next(iter(wrong))} = .* is not valid: use "):
        Settings(**wrong)  # type: ignore[arg-type]


# -- reading


def machine(root: Path, *, meminfo: str = "", group: str = "0::/\n", files: dict[str, str] | None = None) -> tuple[Path, Path]:
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text(meminfo)
    (root / "proc" / "self" / "cgroup").write_text(group)
    for name, text in (files or {}).items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "proc", root / "cgroup"


MEMINFO = "MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\nHugePages_Total: 0\nSwapTotal: 400 kB\nSwapFree: 100 kB\n"


def test_a_host(tmp_path: Path) -> None:
    where = machine(tmp_path, meminfo=MEMINFO)
    assert ram(*where) == 75
    assert swap(*where) == 75


def test_a_host_without_swap(tmp_path: Path) -> None:
    assert swap(*machine(tmp_path, meminfo="MemTotal: 10 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")) is None


def test_a_container_whose_own_limit_is_the_tighter_one(tmp_path: Path) -> None:
    files = {
        "memory.max": "1000\n",
        "memory.current": "990\n",
        "memory.stat": "anon 800\ninactive_file 90\nactive_file 100\n",
        "memory.swap.max": "100\n",
        "memory.swap.current": "80\n",
    }
    where = machine(tmp_path, meminfo=MEMINFO, files=files)
    assert ram(*where) == pytest.approx(90)  # cache that is not in use is as good as free
    assert swap(*where) == 80


def test_the_tightest_cgroup_above_counts(tmp_path: Path) -> None:
    files = {
        "a/memory.max": "1000",
        "a/memory.current": "950",
        "a/b/memory.max": "max",
        "a/b/memory.current": "5",
        "a/b/c/memory.max": "100",
        "a/b/c/memory.current": "20",
        "other/memory.max": "10",
        "other/memory.current": "10",
    }
    assert ram(*machine(tmp_path, meminfo=MEMINFO, group="1:name=x:/old\n0::/a/b/c\n", files=files)) == 95


def test_cgroups_of_the_first_version_are_passed_over(tmp_path: Path) -> None:
    assert ram(*machine(tmp_path, meminfo=MEMINFO, group="4:memory:/docker/1\n")) == 75


def test_nothing_to_read(tmp_path: Path) -> None:
    assert ram(tmp_path / "none", tmp_path) is None
    assert swap(tmp_path / "none", tmp_path) is None


def test_this_machine() -> None:
    readers = machine_readers()
    used = readers["RAM"]()
    assert used is not None and 0 < used <= 100
    assert readers["swap"]() is None or 0 <= (readers["swap"]() or 0) <= 100


@pytest.fixture
def smi(tmp_path: Path) -> Callable[[str], NvidiaSmi]:
    """A program that behaves as nvidia-smi would; there is no GPU here."""

    def make(script: str) -> NvidiaSmi:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return NvidiaSmi(str(path))

    return make


def test_the_fullest_gpu_is_read_without_waiting(smi: Callable[[str], NvidiaSmi], tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    read = smi(f"cat {gate} > /dev/null; echo '1000, 10000'; echo '9000, 10000'; echo '[N/A], [N/A]'")
    assert read() is None  # the program waits, the caller does not
    assert read() is None
    gate.open("w").close()
    gate.unlink()  # or the next one would wait for ever
    assert eventually(read) == 90


def test_a_gpu_reader_that_fails(smi: Callable[[str], NvidiaSmi], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    read = smi(f"echo 1, 2; echo run >> {runs}; exit 9")
    eventually(lambda: read() is None and runs.exists() and len(runs.read_text().split()) > 2)  # each run but the last was read
    assert read() is None
    assert NvidiaSmi(str(tmp_path / "missing"))() is None
