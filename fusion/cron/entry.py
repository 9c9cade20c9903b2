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
from fusion.enqueue.keywords import did_you_mean
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

#: Of ticks that were missed together, how many `misfire="all"` makes up: the newest.
MAKE_UP = 100
#: With `misfire="skip"`, seconds that a tick may be late and still counts as on time.
ON_TIME = 10.0
#: The least `misfire_grace`, in seconds: a scheduler always looks a little late, so that with less than it takes no tick would ever run.
LEAST_GRACE = 1.0
_FORMAT = 1
#: So many of the coming ticks are compared with the jitter.
_LOOKED_AT = 20
_MISFIRE = ("latest", "all", "skip")
_OVERLAP = ("allow", "skip", "queue")
_OPTIONS = frozenset(option.name for option in OPTIONS if option.of == ENTRY)
_POLICY = ("id", "queue", "args", "kwargs", "misfire", "misfire_grace", "overlap", "jitter")


@dataclass(frozen=True, slots=True)
class Entry:
    """`job` is what each tick enqueues, its id apart. `misfire_grace` in seconds, None = any lateness; `jitter` in seconds."""

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
        """Make an entry and check all that its ticks will need, so that none fails later. ValueError or SerializationError."""
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
        # Stored entries are read by people and by schedulers of other versions: always JSON.
        data = build(func, tuple(args), kwargs or {}, EnqueueOptions(**options), replace(settings, serializer="json"))
        entry_id, queue = check_entry_id(default_id(name) if id is None else id), check_queue_name(queue)
        job = data.new
        if settings.keyring is not None:  # once for all its jobs: schedulers and scripts, which make them, need no key
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
        """The stored form of all but the plan. Equal entries give the same text."""
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
        """Read an entry from its stored form. ValueError says why it can't be read."""
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
        """Decide the ticks after `mark` that are due at `now`: which run, which are skipped. Both are Unix seconds of the server's clock."""
        until = math.floor(now)
        if mark is None:  # it was lost: go on from now, since nobody knows what ran
            return Tick(until, (), self.plan.after(until))
        ticks, count = self.plan.between(mark, until, MAKE_UP if self.misfire == "all" else 1)
        grace = ON_TIME if self.misfire == "skip" and self.misfire_grace is None else self.misfire_grace
        runs = tuple((tick, self._delay(tick)) for tick in ticks if grace is None or now - tick <= max(grace, LEAST_GRACE))
        upto = ticks[-1] if ticks else mark
        return Tick(upto, runs, self.plan.after(upto), count - len(runs))

    def _delay(self, tick: int) -> float:
        """The jitter of a tick in seconds: by chance, but the same for every scheduler."""
        return random.Random(f"{self.id} {tick}").uniform(0, self.jitter) if self.jitter else 0.0

    # -- what is said about it

    def faults(self) -> list[str]:
        """Reasons why this stored entry could not be declared today. Earlier versions took it, so it runs nevertheless."""
        faults = [self.plan.fault] if self.plan.fault else []
        if self.misfire_grace is not None and self.misfire_grace < LEAST_GRACE:
            faults.append(f"{_too_little(self.misfire_grace)}; until then it counts as {LEAST_GRACE:g}")
        return faults

    def remarks(self, now: int) -> list[str]:
        """Remarks for people: what is right and may still surprise."""
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
    """A hash of plan and spec. Who decides a tick sends it along, so that the script refuses if the entry has changed since."""
    return hashlib.sha1(f"{plan}\n{spec}".encode(), usedforsecurity=False).hexdigest()[:16]


def default_id(func_name: str) -> str:
    """The id of an entry that names none: the function's dotted name with `-`."""
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
        f"misfire_grace={grace!r}: every tick is a little late, so that none would run; use {LEAST_GRACE:g} second or more,"
        f" or leave it out (no limit; with misfire='skip' {ON_TIME:g} s)"
    )


def _field(value: Any) -> str | int | float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"{value!r:.100} is no field of a job")
    if isinstance(value, str):
        value.encode()  # half a surrogate pair is no text that could be sent
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= FURTHEST:
        raise TypeError(f"{value!r} is no duration")
    return value


def _optional(value: Any) -> float | None:
    return None if value is None else _number(value)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
