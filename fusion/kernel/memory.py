"""Reads memory use, and decides when it is too full to take more work. This module knows nothing of workers."""

from __future__ import annotations

import importlib
import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fusion.exceptions import ConfigurationError

#: Percent in use; None if there is no such memory or it can't be read.
Reader = Callable[[], float | None]
#: Points below its limit at which swap counts as free again: it has no resume threshold of its own.
_SWAP_GAP = 5.0
#: Seconds after which a silent nvidia-smi is killed: with a hung driver it hangs for ever.
_SMI_LIMIT = 30.0


@dataclass(frozen=True)
class Bound:
    """Stop at `stop` percent, resume at `resume` percent or below."""

    name: str
    stop: float
    resume: float
    read: Reader


class Limits(Protocol):
    """The settings of a throttle, in percent and seconds; workers and the in-process manager have them."""

    @property
    def memory_throttle_threshold(self) -> float: ...
    @property
    def memory_resume_threshold(self) -> float: ...
    @property
    def gpu_throttle_threshold(self) -> float: ...
    @property
    def gpu_resume_threshold(self) -> float: ...
    @property
    def swap_threshold(self) -> float: ...
    @property
    def memory_check_interval(self) -> float: ...


class MemoryThrottle:
    """Active from when a reading reaches its limit until it is down to its resume figure; each kind of memory is separate.

    A missing reading (None) neither stops nor holds anything; one that is no number (NaN) changes nothing. `scarce` has the last figure of
    each kind that is over its limit; `active` is the same as a text.
    """

    def __init__(self, bounds: list[Bound], interval: float) -> None:
        self._bounds, self._interval = bounds, interval
        self.scarce: dict[str, float] = {}
        self.active = ""
        self.next_at = 0.0

    @classmethod
    def of(cls, settings: Limits, readers: Mapping[str, Reader] | None = None) -> MemoryThrottle:
        """Make a throttle from the settings. `readers` for `RAM`, `swap` and `GPU` replace those of this machine."""
        readers = machine_readers() if readers is None else readers
        if not readers:
            raise ConfigurationError(
                "--memory-throttle needs psutil on this system; pip install 'fusion-queue[worker]', or leave it out",
                code="FUS-214",
            )
        limits = {
            "RAM": (settings.memory_throttle_threshold, settings.memory_resume_threshold),
            "swap": (settings.swap_threshold, max(0.0, settings.swap_threshold - _SWAP_GAP)),
            "GPU": (settings.gpu_throttle_threshold, settings.gpu_resume_threshold),
        }
        bounds = [Bound(name, *limits[name], read) for name, read in readers.items()]
        return cls(bounds, settings.memory_check_interval)

    def check(self, now: float) -> str:
        """Read memory and decide, if the interval is over. Returns the line to log if the decision changed, else an empty text."""
        self.next_at = now + self._interval
        before, told = self.scarce, list[str]()
        scarce: dict[str, float] = {}
        for bound in self._bounds:
            used = bound.read()
            if used is not None and math.isnan(used):  # no figure: the last decision stands
                used = before.get(bound.name)
            if used is not None and (used > bound.resume if bound.name in before else used >= bound.stop):
                scarce[bound.name] = used
                told.append(f"{bound.name} {used:.1f} % (limit {bound.stop:g} %)")
        self.scarce = scarce
        self.active = ", ".join(f"{name} {used:.1f} %" for name, used in scarce.items())
        if scarce and not before:
            return "MEMORY THROTTLE ACTIVE: " + ", ".join(told)
        return "MEMORY THROTTLE RELEASED" if before and not scarce else ""


# -- readings


def machine_readers() -> dict[str, Reader]:
    """Return readers of RAM, swap and GPU, as far as this machine has them. Empty off Linux without psutil and without a GPU."""
    readers: dict[str, Reader] = {}
    if os.path.exists("/proc/meminfo"):
        readers = {"RAM": ram, "swap": swap}
    elif (psutil := _optional("psutil")) is not None:
        readers = {"RAM": lambda: float(psutil.virtual_memory().percent), "swap": lambda: float(psutil.swap_memory().percent)}
    gpu = gpu_reader()
    if gpu is not None:
        readers["GPU"] = gpu
    return readers


def ram(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the percent in use of the host's memory, or of the tightest cgroup of this process, whichever is fuller."""
    found = _meminfo(proc)
    total, available = found.get("MemTotal"), found.get("MemAvailable")
    shares = [100 * (1 - available / total)] if total and available is not None else []
    shares += [
        # Cache that was not used lately is freed before any process is killed.
        100 * max(0, used - _number(group / "memory.stat", "inactive_file")) / limit
        for group, limit, used in _limits(proc, cgroups, "memory")
    ]
    return max(shares, default=None)


def swap(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the percent of swap in use, of the host or of the tightest cgroup. None without swap."""
    found = _meminfo(proc)
    total, free = found.get("SwapTotal"), found.get("SwapFree")
    shares = [100 * (1 - free / total)] if total and free is not None else []
    shares += [100 * used / limit for _, limit, used in _limits(proc, cgroups, "memory.swap")]
    return max(shares, default=None)


def _meminfo(proc: Path) -> dict[str, int]:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
    except OSError:
        return {}
    rows = (line.replace(":", " ").split() for line in lines)
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _limits(proc: Path, cgroups: Path, kind: str) -> list[tuple[Path, int, int]]:
    """Return (directory, limit, in use) of this process's cgroup and those above it that have a limit (cgroup v2)."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    path = next((line[3:] for line in lines if line.startswith("0::")), None)
    if path is None:
        return []
    group, found = cgroups / path.strip("/"), []
    while True:
        limit, used = _number(group / f"{kind}.max"), _number(group / f"{kind}.current")
        if limit:
            found.append((group, limit, used))
        if group == cgroups or cgroups not in group.parents:
            return found
        group = group.parent


def _number(file: Path, name: str = "") -> int:
    """Return the figure in a file, or after `name` in it; 0 for `max` or none."""
    try:
        text = file.read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        words = line.split()
        if words and (not name or words[0] == name) and words[-1].isdigit():
            return int(words[-1])
    return 0


# -- GPUs: read only where a reader is installed


def gpu_reader() -> Reader | None:
    """Return a reader of the fullest GPU, by pynvml, else by nvidia-smi. None if neither works here."""
    pynvml = _optional("pynvml")
    if pynvml is not None:
        try:
            pynvml.nvmlInit()
            if pynvml.nvmlDeviceGetCount():
                return lambda: _by_pynvml(pynvml)
        except pynvml.NVMLError:
            pass
    program = shutil.which("nvidia-smi")
    return NvidiaSmi(program) if program else None


def _by_pynvml(pynvml: Any) -> float | None:
    """Return the percent in use of the fullest device."""
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        found = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    except pynvml.NVMLError:
        return None
    return max((100 * memory.used / memory.total for memory in found), default=None)


class NvidiaSmi:
    """Reads nvidia-smi, which may take seconds, without waiting: each reading is the result of the previous call."""

    def __init__(self, program: str) -> None:
        self._command = [program, "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits"]
        self._running: subprocess.Popen[str] | None = None
        self._started = 0.0
        self._last: float | None = None

    def __call__(self) -> float | None:
        now = time.monotonic()
        if self._running is not None and self._running.poll() is not None:
            self._last = self._parse(*self._running.communicate(), self._running.returncode)
            self._running = None
        elif self._running is not None and now > self._started + _SMI_LIMIT:
            self._running.kill()
        if self._running is None:
            self._started = now
            try:
                self._running = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            except OSError:
                self._last = None
        return self._last

    @staticmethod
    def _parse(out: str, _: object, code: int) -> float | None:
        """Return the fullest device, from lines like `1024, 24576`."""
        shares = []
        for line in out.splitlines() if code == 0 else ():
            used, _, total = line.partition(",")
            try:
                shares.append(100 * float(used) / float(total))
            except (ValueError, ZeroDivisionError):  # `[N/A]` if a device reports nothing
                continue
        return max(shares, default=None)


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
