"""The settings of a manager, with defaults from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from fusion.exceptions import ConfigurationError
from fusion.settings import readers


def _setting(name: str, default: Any, read: Callable[[Any], Any]) -> Any:
    """Return a field whose default is read when a ManagerSettings is made, from the variable `name` or FUSION_<name>."""

    def from_environment() -> Any:
        for variable in (f"FUSION_{name}", name):
            text = os.environ.get(variable)
            if text:
                return _read(f"environment variable {variable}", text, read)
        return default

    return field(default_factory=from_environment, metadata={"read": read, "default": default, "variable": name})


def _read(where: str, value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except readers.Invalid as rule:
        raise ConfigurationError(f"{where} = {value!r} is not valid: {rule}", code="FUS-231") from None


@dataclass(frozen=True)
class ManagerSettings:
    """Settings of a manager. Times are seconds. ConfigurationError names an invalid value and its source.

    A field that is not given comes from the environment variable with its name in capitals.
    """

    #: Time between two fetches.
    master_fetch_interval_seconds: float = _setting("MASTER_FETCH_INTERVAL_SECONDS", 60.0, readers.seconds(0.01))
    #: Time before the first fetch.
    master_grace_period_seconds: float = _setting("MASTER_GRACE_PERIOD_SECONDS", 15.0, readers.seconds(0))
    #: Time between the first starts of two workers.
    worker_stagger_seconds: float = _setting("WORKER_STAGGER_SECONDS", 1.0, readers.seconds(0))
    #: Rest of a worker between two jobs.
    worker_cooldown_seconds: float = _setting("WORKER_COOLDOWN_SECONDS", 10.0, readers.seconds(0))
    #: A worker's thread ends after one job and a new one replaces it, so that no state of a job stays.
    worker_single_job_mode: bool = _setting("WORKER_SINGLE_JOB_MODE", True, readers.flag)
    #: Time of a job without its own timeout; 0 = no limit.
    job_timeout_seconds: float = _setting("JOB_TIMEOUT_SECONDS", 3600.0, readers.seconds(0))
    #: Time after its timeout in which a job may end, before another worker replaces its worker.
    job_timeout_grace_seconds: float = _setting("JOB_TIMEOUT_GRACE_SECONDS", 10.0, readers.seconds(0))
    #: RAM in use, in percent, at which no job is fetched or pulled.
    memory_throttle_threshold: float = _setting("MEMORY_THROTTLE_THRESHOLD", 90.0, readers.percent)
    #: RAM in use, in percent, at which jobs are fetched and pulled again.
    memory_resume_threshold: float = _setting("MEMORY_RESUME_THRESHOLD", 80.0, readers.percent)
    #: The same for the fullest GPU.
    gpu_throttle_threshold: float = _setting("GPU_THROTTLE_THRESHOLD", 85.0, readers.percent)
    #: The same for the fullest GPU.
    gpu_resume_threshold: float = _setting("GPU_RESUME_THRESHOLD", 75.0, readers.percent)
    #: The same for swap; jobs go on when it is 5 points lower.
    swap_threshold: float = _setting("SWAP_THRESHOLD", 70.0, readers.percent)
    #: Time between two checks of memory.
    memory_check_interval: float = _setting("MEMORY_CHECK_INTERVAL", 5.0, readers.seconds(0.1))

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _read(f"setting {item.name}", getattr(self, item.name), item.metadata["read"])
            object.__setattr__(self, item.name, value)
        for kind in ("memory", "gpu"):
            limit, resume = getattr(self, f"{kind}_throttle_threshold"), getattr(self, f"{kind}_resume_threshold")
            if resume > limit:
                name = f"{kind}_resume_threshold"
                raise ConfigurationError(
                    f"setting {name} = {resume:g} ({name.upper()} in the environment) is not valid: "
                    f"use at most {kind}_throttle_threshold, which is {limit:g}",
                    code="FUS-231",
                )
