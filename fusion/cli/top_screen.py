"""`top` on a terminal: what its keys do. All reading and changing is done in threads, so that keys work even if Redis hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from shutil import get_terminal_size
from threading import Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from fusion.cli import screen, top_render
from fusion.cli.context import Cli
from fusion.cli.output import shown
from fusion.cli.tables import cut, room
from fusion.cli.top_render import Reading

if TYPE_CHECKING:
    from fusion.jobs.sheet import Sheet

_Found = TypeVar("_Found")
#: Keys and what they do, those that matter most first: on a narrow terminal the last ones are not named.
_KEYS = ("q quit", "↑↓ choose", "Enter open", "s stop", "f failures", "p freeze", "r read now")
_KEYS_OF_JOB = ("q back", "s stop", "↑↓ scroll", "p freeze", "r read now")
#: Least seconds between two readings of an opened job; seconds that the end waits for a stop that was asked for.
_READ_JOB, _PATIENCE = 2.0, 2.0


class _Task(Generic[_Found]):
    """A call in a thread of its own. `found`: its answer; `error`: what it raised."""

    def __init__(self, call: Callable[[], _Found]) -> None:
        self._call = call
        self.found: _Found | None = None
        self.error: Exception | None = None
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.found = self._call()
        except Exception as error:
            self.error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)


@dataclass(frozen=True)
class _Named:
    """A job that a key is about."""

    id: str
    queue: str
    title: str


class _Screen:
    """The state of the screen: the last reading, and the changes by keys."""

    def __init__(self, cli: Cli, read: Callable[[bool], Reading], interval: float) -> None:
        self._cli, self._read, self.interval = cli, read, interval
        self.reading = read(False)  # an error of the first reading is reported like that of any command
        self.frozen, self.failures, self.again, self.left = False, False, False, False
        #: When the next reading is due, by the monotonic clock; and how many frames of data there were.
        self.due, self.frames = time.monotonic() + interval, 1
        self.look: _Task[Reading] | _Task[Sheet] | None = None
        self._order: _Task[str] | None = None
        self._trouble, self._note = "", ""
        #: The chosen job, and its last place among the rows.
        self._chosen: str | None = None
        self._place = 0
        #: The job of the question that waits for an answer.
        self._asked: _Named | None = None
        #: The opened job, what was read of it, and the first line on the screen.
        self._opened: _Named | None = None
        self._sheet: Sheet | None = None
        self._top = 0

    # -- what is shown

    def text(self) -> str:
        """Return the frame without its last line."""
        width, height = room(), get_terminal_size().lines - 2
        if self._opened is None:
            return top_render.text(
                self.reading, width=width, height=height, failures=self.failures, chosen=self._row(self._chosen)
            )
        if self._sheet is None:
            return f"Reading {shown(self._opened.id)}"
        from fusion.cli.job_render import lines

        found = [shown(line) if width is None else cut(shown(line), width) for line in lines(self._sheet)]
        self._top = max(0, min(self._top, len(found) - height))
        return "\n".join(found[self._top : self._top + height])

    def line(self) -> str:
        """Return the last line: a question, an answer, an error, or the keys."""
        if self._asked is not None:
            return shown(f"Stop it? y does, any other key does not: {self._asked.title} {top_render.short(self._asked.id)}")
        if self._note or self._trouble:
            return self._note or self._trouble
        state = "frozen" if self.frozen else f"every {self._interval:g} s"
        named = {"p freeze": "p go on"} if self.frozen else {}
        named |= {"f failures": "f workers"} if self.failures else {}
        keys, most = "", (room() or 200) - len(state) - 3
        for key in _KEYS if self._opened is None else _KEYS_OF_JOB:
            more = f"{keys}{'  ' * bool(keys)}{named.get(key, key)}"
            if len(more) > most:
                break
            keys = more
        return f"{keys}   {state}"

    # -- what is read and done

    def work(self) -> None:
        """Take what a thread has done, and begin the next reading if it is due."""
        if self._order is not None and self._order.over:
            error, self._note = self._order.error, shown(self._order.found or "")
            self._order, self.again = None, True
            if error is not None:
                self._note = screen.in_words(error)
        if self.look is not None and self.look.over:
            self._take(self.look)
            self.look, self.frames = None, self.frames + 1
            self.due = max(self.due, time.monotonic() + self._interval)
        if self.look is None and (self.again or (not self.frozen and time.monotonic() >= self.due)):
            self.again = False
            self.look = _Task(partial(self._read, self.failures)) if self._opened is None else _Task(self._job(self._opened.id))

    @property
    def wait(self) -> float:
        """Seconds until something may have changed without a key."""
        return 0.05 if self.look or self._order else 3600.0 if self.frozen else self.due - time.monotonic()

    def end(self) -> None:
        """Wait a moment for a stop that was asked for."""
        if self._order is not None:
            self._order.wait(_PATIENCE)

    @property
    def _interval(self) -> float:
        return self.interval if self._opened is None else max(self.interval, _READ_JOB)

    def _take(self, look: _Task[Reading] | _Task[Sheet]) -> None:
        if look.error is not None:
            self._trouble = screen.in_words(look.error)
            return
        found, self._trouble = look.found, ""
        assert found is not None
        if not isinstance(found, Reading):
            if self._opened is not None and found.id == self._opened.id:
                self._sheet = found
            return
        if self.failures and found.failed is None:
            found = replace(found, failed=self.reading.failed)
        self.reading = found
        if self._chosen is not None and self._row(self._chosen) is None:
            self._chosen = None  # another job stands in its line now: nothing is done to that by mistake

    def _job(self, job_id: str) -> Callable[[], Sheet]:
        from fusion.store.access import sheet_inspector_of
        from fusion.views.job_sheet import read_job

        return partial(read_job, sheet_inspector_of(self._cli.looking), job_id)

    def _stop(self, job: _Named) -> str:
        from fusion.audit import audited
        from fusion.status import why_not
        from fusion.store.layout.pauses import this_user

        name = f"{job.title} {top_render.short(job.id)}"
        with audited(self._cli.connection, this_user(), "stop", job.id, [job.queue] if job.queue else []) as entry:
            answer = self._cli.broker.stop(job.id)
            if answer in ("stopped", "pending"):
                entry.changed(1)
                return f"{'Stopped' if answer == 'stopped' else 'Told its worker to stop'}: {name}"
            why = "there is no such job" if answer == "missing" else why_not(answer)
            entry.done(outcome=why)
            return f"Not stopped, {why}: {name}"

    # -- keys

    def press(self, key: str) -> None:
        """Do what a key says."""
        asked, self._asked, self._note = self._asked, None, ""
        if asked is not None:
            if key in "yY":
                self._note = "Stopping it ..."
                self._order = _Task(partial(self._stop, asked))
        elif key in "pP":
            self.frozen = not self.frozen
            self.due = time.monotonic()
        elif key in "rR":
            self.again = True
        elif key in "sS":
            self._ask()
        elif self._opened is not None:
            self._press_in_job(key)
        elif key in "qQ":
            self.left = True
        elif key in "fF":
            self.failures = not self.failures
            self.again = self.failures
            self._chosen = None
        elif key in ("up", "down"):
            self._choose(1 if key == "down" else -1)
        elif key == "esc":
            self._chosen = None
        elif key == "enter":
            self._open()

    def _press_in_job(self, key: str) -> None:
        page = max(1, get_terminal_size().lines - 4)
        steps = {"up": -1, "down": 1, "page up": -page, "page down": page, " ": page, "home": -(10**9), "end": 10**9}
        if key in ("q", "Q", "esc", "enter", "left"):
            self._opened, self._sheet, self.due = None, None, time.monotonic()
        elif key in steps:
            self._top = max(0, self._top + steps[key])

    def _rows(self) -> Sequence[_Named]:
        return [_Named(one.id, one.queue, top_render.title(one)) for one in top_render.jobs_of(self.reading, self.failures)]

    def _row(self, job_id: str | None) -> int | None:
        jobs = top_render.jobs_of(self.reading, self.failures)
        return next((i for i, one in enumerate(jobs) if one.id == job_id), None)

    def _choose(self, step: int) -> None:
        rows = self._rows()
        if not rows:
            self._note = "No job runs"
            return
        at = self._row(self._chosen)
        if at is None:  # where the last choice was, which may be the first line
            at = self._place if step > 0 else self._place - 1
        else:
            at += step
        self._place = max(0, min(at, len(rows) - 1))
        self._chosen = rows[self._place].id

    def _of_key(self) -> _Named | None:
        """Return the job that a key is about; without one, say how to choose it."""
        if self._opened is not None:
            return self._opened
        at = self._row(self._chosen)
        if at is None:
            self._note = "Choose a job first, with the arrows" if self._rows() else "No job runs"
            return None
        return self._rows()[at]

    def _ask(self) -> None:
        if self._order is not None:
            self._note = "It still stops another job"
        else:
            self._asked = self._of_key()

    def _open(self) -> None:
        self._opened = self._of_key()
        self._sheet, self._top, self.again = None, 0, self._opened is not None


def watch(cli: Cli, read: Callable[[bool], Reading], interval: float, count: int | None) -> None:
    """Show frames and obey keys, until `q`, Ctrl-C, or `count` frames."""
    shown_ = _Screen(cli, read, interval)
    with screen.alternate_screen(), screen.TypedKeys().raw() as keys:
        while not shown_.left:
            screen.draw(shown_.text(), shown_.line())
            if count is not None and shown_.frames >= count and shown_.look is None:
                break
            for key in keys.wait(shown_.wait):
                shown_.press(key)
            shown_.work()
        shown_.end()
