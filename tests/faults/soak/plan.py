"""What a soak does, drawn from its seed: jobs, what is expected of each, and strikes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fusion.retry import Retry
from tests.faults.soak.tasks import SIGKILL, SIGSEGV

QUEUES = ("steady", "other")
TASKS = "tests.faults.soak.tasks"
#: Seconds.
LEASE = 2.0
REAP_INTERVAL = 0.5
#: Of jobs that run over it.
TIMEOUT = 1.0

#: Strikes of a run with 215 SIGKILLs, half of them of a busy horse and its worker.
STRIKES = {
    "kill horse+worker": 105,
    "kill horse": 25,
    "kill worker": 25,
    "kill fork server": 15,
    "kill supervisor": 10,
    "kill scheduler": 15,
    "kill relay": 10,
    "kill producer": 5,
    "kill Redis": 5,
    "stop worker": 20,
    "stop worker and its processes": 12,
    "stop supervisor": 2,
    "stop scheduler": 5,
    "stop relay": 3,
    "stop Redis": 5,
    "flush scripts": 5,
    "drop all clients": 5,
    "cut a connection": 20,
    "end worker": 10,
    "reload worker": 5,
    "reload supervisor": 2,
}
KILLS = sum(count for name, count in STRIKES.items() if name.startswith("kill "))


#: Concurrency keys, with one to three slots, and the kinds of jobs of which some have one.
KEYS, KEYED = 20, ("quick", "slow", "raise", "flaky", "hopeless", "exit", "suicide")

#: A queue of jobs so short that warm processes are given several ahead, and how many of the others there are between two rushes.
RUSH, BETWEEN = "rush", 50


@dataclass(frozen=True)
class Job:
    """`ends`: the status it must reach, or `may_end`; `failures`: attempts that fail on the way; `reason`: what a failed one's reason
    holds. `wish`: `stop`, `cancel` or `cancel batch`, which a person says this many seconds after it was enqueued, or `wish_running` after it began.
    `batch`: of which it is a member, or which calls it back `batch_as` it has an end, `complete` or `success`.
    `parents`: ids, each with what happens to this one should that not finish; `takes`: it is given what the parent returned."""

    id: str
    kind: str
    queue: str
    function: str
    ends: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    failures: int = 0
    reason: str = ""
    later: float = 0.0
    may_end: tuple[str, ...] = ()
    wish: str = ""
    wish_after: float = 0.0
    wish_running: bool = False
    parents: tuple[tuple[str, str], ...] = ()
    takes: bool = False
    batch: str = ""
    batch_as: str = ""


def job(seed: int, n: int) -> Job:
    """The n-th job: the same whoever asks."""
    chance = random.Random(f"{seed}:{n}")
    kind = _kind(chance.random())
    made = _JOBS[kind](chance)
    options = {"result_ttl": 86400, "log_tag": f"SOAK_{kind.upper()}", **made.pop("options", {})}
    options["priority"] = chance.choices((2, 1, 0), (10, 80, 10))[0]
    if kind in KEYED and chance.random() < 0.4:
        number = chance.randrange(KEYS)
        options |= {"concurrency_key": f"key{number}", "max_concurrent": 1 + number % 3}
    later = chance.uniform(0.2, 3.0) if chance.random() < 0.05 else 0.0
    function = f"{TASKS}.{made.pop('function')}"
    return Job(id=f"s{n:06d}", kind=kind, queue=chance.choice(QUEUES), function=function, options=options, later=later, **made)


def rush_job(seed: int, n: int) -> Job:
    """The n-th of the short ones."""
    seconds = random.Random(f"{seed}:rush:{n}").uniform(0, 0.001)
    return Job(f"r{n:06d}", RUSH, RUSH, f"{TASKS}.effect", "finished", (seconds,), {"result_ttl": 86400, "log_tag": "SOAK_RUSH"})


def _kind(x: float) -> str:
    """Per cent: 70 quick, 19 slow, 1 that outlasts a lease, 5 that raise (some are tried again), 3 over their timeout, 2 that crash."""
    for limit, kind in _MIX:
        if x < limit:
            return kind
    return "quick"


_MIX = (
    (0.190, "slow"),
    (0.200, "long"),
    (0.220, "raise"),
    (0.240, "flaky"),
    (0.250, "hopeless"),
    (0.270, "hang"),
    (0.280, "cling"),
    (0.287, "exit"),
    (0.294, "segfault"),
    (0.300, "suicide"),
)
_OVERTIME = {"ends": "failed", "failures": 1, "reason": "JobTimeoutException", "options": {"job_timeout": TIMEOUT}}
_JOBS: dict[str, Any] = {
    "quick": lambda chance: {"function": "effect", "args": (chance.uniform(0, 0.01),), "ends": "finished"},
    "slow": lambda chance: {"function": "effect", "args": (0.1,), "ends": "finished"},
    "long": lambda chance: {"function": "effect", "args": (1.25 * LEASE,), "ends": "finished"},
    "raise": lambda chance: {"function": "refuse", "ends": "failed", "failures": 1, "reason": "ValueError"},
    "flaky": lambda chance: {
        "function": "flaky",
        "args": (2,),
        "ends": "finished",
        "failures": 2,
        "options": {"retry": Retry(max=3, interval=[0.1, 0.5])},
    },
    "hopeless": lambda chance: {
        "function": "refuse",
        "ends": "failed",
        "failures": 3,
        "reason": "ValueError",
        "options": {"retry": Retry(max=2, interval=[0.2], on=(ValueError,))},
    },
    "hang": lambda chance: {"function": "hang", **_OVERTIME},
    "cling": lambda chance: {"function": "cling", **_OVERTIME, "reason": "was killed"},
    "exit": lambda chance: {
        "function": "leave",
        "args": (chance.choice((0, 3)),),
        "ends": "failed",
        "failures": 1,
        "reason": "exit",
    },
    "segfault": lambda chance: {"function": "crash", "args": (SIGSEGV,), "ends": "failed", "failures": 1, "reason": "SIGSEGV"},
    # Told from nothing that others do to a process, so it is a loss each time, until that makes it a poison pill.
    "suicide": lambda chance: {"function": "crash", "args": (SIGKILL,), "ends": "failed", "reason": "poison pill"},
}


def strikes(seed: int, kills: int) -> list[str]:
    """This many SIGKILLs, and the other strikes in proportion: at least one of each."""
    wanted = Counter({name: max(1, round(count * kills / KILLS)) for name, count in STRIKES.items()})
    order = list(wanted.elements())
    random.Random(f"{seed}:strikes").shuffle(order)
    return order
