"""A cron entry: its plan, the job of each tick, and its rules for ticks that can't run as planned."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from fusion.cron.plan import Plan
from fusion.enqueue.build import build
from fusion.enqueue.call import did_you_mean
from fusion.enqueue.options import ENTRY, OPTIONS, EnqueueOptions
from fusion.exceptions import OptionError
from fusion.kernel import defaults
from fusion.kernel.importing import func_name_of
from fusion.kernel.signing import SIGNATURE
from fusion.kernel.timeutil import FURTHEST, parse_seconds
from fusion.settings import Settings
from fusion.store.layout.names import check_entry_id, check_queue_name
from fusion.store.layout.records import NewJob, Tick
from fusion.store.layout.score import check_priority

#: Most ticks missed together that `misfire="all"` makes up: the newest ones.
MAKE_UP = 100
#: With `misfire="skip"`: seconds by which a tick may be late and still count as on time.
ON_TIME = 10.0
#: The least `misfire_grace`, in seconds: a scheduler is always a little late, so with less no tick would ever run.
LEAST_GRACE = 1.0
_FORMAT = 1
#: Number of coming ticks that are compared with the jitter.
_LOOKED_AT = 20
_MISFIRE = ("latest", "all", "skip")
_OVERLAP = ("allow", "skip", "queue")
_OPTIONS = frozenset(option.name for option in OPTIONS if option.of == ENTRY)
_POLICY = ("id", "queue", "args", "kwargs", "misfire", "misfire_grace", "overlap", "jitter")


@dataclass(frozen=True, slots=True)
class Entry:
    """A cron entry. `job`: what each tick enqueues, without the id. `misfire_grace`: seconds, None = any lateness. `jitter`: seconds."""

    id: str
    plan: Plan
    func_name: str
    queue: str
    job: NewJob
    misfire: str
    misfire_grace: float | None
    overlap: str
    jitter: float

    @classmethod
    def make(
        cls,
        func: str | Callable[..., Any],
        plan: Plan,
        settings: Settings,
        *,
        id: str | None = None,
        queue: str = defaults.QUEUE,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        misfire: str = "latest",
        misfire_grace: float | str | None = None,
        overlap: str = "allow",
        jitter: float | str = 0,
        **options: Any,
    ) -> Entry:
        """Make an entry, and check everything that its ticks need, so that no tick fails later. ValueError or SerializationError."""
        if misfire not in _MISFIRE:
            raise ValueError(f"misfire={misfire!r}: use 'latest', 'all' or 'skip'")
        if overlap not in _OVERLAP:
            raise ValueError(f"overlap={overlap!r}: use 'allow', 'skip' or 'queue'")
        for name in options:
            if name not in _OPTIONS:
                known = {*_OPTIONS, *_POLICY}
                hint = did_you_mean(name, known) or f"; use one of {', '.join(sorted(known))}"
                raise OptionError("", f"{name}= is not an option of a cron entry{hint}")
        name = func_name_of(func)
        # Stored entries are always JSON: people and schedulers of other versions read them.
        data = build(func, tuple(args), kwargs or {}, EnqueueOptions(**options), replace(settings, serializer="json"))
        entry_id, queue = check_entry_id(default_id(name) if id is None else id), check_queue_name(queue)
        job = data.new
        if settings.keyring is not None:  # signed once for all jobs: schedulers and scripts, which make the jobs, need no key
            signature = settings.keyring.sign_entry(entry_id, queue, job.priority, job.fields)
            job = replace(job, fields={**job.fields, SIGNATURE: signature})
        return cls(
            entry_id,
            plan,
            name,
            queue,
            job,
            misfire,
            None if misfire_grace is None else _grace(misfire_grace),
            overlap,
            _seconds("jitter", jitter),
        )

    # -- as stored

    def spec(self) -> str:
        """Return the stored form of everything but the plan. Equal entries give the same text."""
        fields = {name: _plain(value) for name, value in self.job.fields.items() if value is not None}
        spec = {
            "format": _FORMAT,
            "func": self.func_name,
            "queue": self.queue,
            "priority": self.job.priority,
            "ttl": self.job.ttl,
        }
        spec |= {"fields": fields, "misfire": self.misfire, "misfire_grace": self.misfire_grace}
        spec |= {"overlap": self.overlap, "jitter": self.jitter}
        return json.dumps(spec, sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, id: str, plan: str, spec: str) -> Entry:
        """Read an entry from its stored form. ValueError with the reason if it can't be read."""
        try:
            found = json.loads(spec)
            if found["format"] != _FORMAT:
                raise ValueError(f"it has format {found['format']}; this scheduler reads {_FORMAT}: upgrade it")
            fields = {str(name): _field(value) for name, value in found["fields"].items()}
            job = NewJob("", check_priority(found["priority"]), fields, ttl=_optional(found["ttl"]))
            policy = (found["misfire"], _optional(found["misfire_grace"]), found["overlap"], _number(found["jitter"]))
            if policy[0] not in _MISFIRE or policy[2] not in _OVERLAP:
                raise TypeError(f"no such policy: {policy}")
            return cls(id, Plan.from_json(plan), str(found["func"]), check_queue_name(found["queue"]), job, *policy)
        except (KeyError, TypeError, AttributeError, RecursionError, UnicodeEncodeError, json.JSONDecodeError) as error:
            raise ValueError(f"what is stored of it is damaged ({error!r}); declare it again") from None

    # -- what a scheduler does with it

    def decide(self, mark: int | None, now: float) -> Tick:
        """Decide which ticks after `mark` and due at `now` run, and which are skipped. Both are Unix seconds of the server's clock."""
        until = math.floor(now)
        if mark is None:  # the mark was lost: go on from now, as it is unknown which ticks ran
            return Tick(until, (), self.plan.after(until))
        ticks, count = self.plan.between(mark, until, MAKE_UP if self.misfire == "all" else 1)
        grace = ON_TIME if self.misfire == "skip" and self.misfire_grace is None else self.misfire_grace
        runs = tuple((tick, self._delay(tick)) for tick in ticks if grace is None or now - tick <= max(grace, LEAST_GRACE))
        upto = ticks[-1] if ticks else mark
        return Tick(upto, runs, self.plan.after(upto), count - len(runs))

    def _delay(self, tick: int) -> float:
        """Return the jitter of a tick in seconds: random, but the same for every scheduler."""
        return random.Random(f"{self.id} {tick}").uniform(0, self.jitter) if self.jitter else 0.0

    # -- faults and remarks

    def faults(self) -> list[str]:
        """Return the reasons why this stored entry could not be declared today. It runs nevertheless, as an earlier version accepted it."""
        faults = [self.plan.fault] if self.plan.fault else []
        if self.misfire_grace is not None and self.misfire_grace < LEAST_GRACE:
            faults.append(f"{_too_little(self.misfire_grace)}; until then it counts as {LEAST_GRACE:g}")
        return faults

    def remarks(self, now: int) -> list[str]:
        """Return remarks for people: correct settings with surprising effects."""
        said, ticks = self.plan.remarks(), [self.plan.after(now)]
        while self.jitter and ticks[-1] is not None and len(ticks) < _LOOKED_AT:
            ticks.append(self.plan.after(ticks[-1]))
        gaps = [later - tick for tick, later in pairwise(ticks) if tick is not None and later is not None]
        if gaps and self.jitter > min(gaps):
            said.append(
                f"jitter={self.jitter:g} is longer than the {min(gaps)} s between two ticks: the later one may start first"
            )
        return said


def revision(plan: str, spec: str) -> str:
    """Return a hash of plan and spec. It is sent with each decision, so that the script refuses if the entry has changed since."""
    return hashlib.sha1(f"{plan}\n{spec}".encode(), usedforsecurity=False).hexdigest()[:16]


def default_id(func_name: str) -> str:
    """Return the default id of an entry: the function's dotted name with `-`."""
    return func_name.replace(".", "-")


def _seconds(name: str, value: float | str) -> float:
    seconds = parse_seconds(value)
    if not 0 <= seconds <= FURTHEST:
        raise ValueError(f"{name}={value!r}: use a duration of 0 or more, up to {FURTHEST:.0f} s (31 years)")
    return seconds


def _grace(value: float | str) -> float:
    seconds = _seconds("misfire_grace", value)
    if seconds < LEAST_GRACE:
        raise ValueError(_too_little(value))
    return seconds


def _too_little(grace: float | str) -> str:
    return (
        f"misfire_grace={grace!r}: every tick is a little late and would not run; use {LEAST_GRACE:g} second or more,"
        f" or leave it out (no limit; with misfire='skip' {ON_TIME:g} s)"
    )


def _field(value: Any) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"{value!r:.100} is not a field of a job")
    if isinstance(value, str):
        value.encode()  # half a surrogate pair is no text that could be sent
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= FURTHEST:
        raise TypeError(f"{value!r} is not a duration")
    return value


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
