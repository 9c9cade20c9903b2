"""What goes wrong, and what is counted then. Each scenario takes a running service and returns its row by the table's columns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median

from benchmarks.compare.running import Running, Runs

Row = dict[str, str]
#: Seconds that a job may stay away before it counts as lost; a quarter more than the longest wait for a dead worker by default but Celery's.
LIMIT = 800.0
#: Seconds that are watched after the last job has come, for jobs that run twice.
AFTER = 75.0


def lost(jobs: Iterable[Runs]) -> str:
    """How many of the jobs whose call returned never ran to an end."""
    accepted = [runs for runs in jobs if runs.error is None]
    return f"{sum(not runs.ends for runs in accepted)} of {len(accepted)}"


def twice(jobs: Iterable[Runs]) -> str:
    """How many ran to an end more than once."""
    return str(sum(len(runs.ends) > 1 for runs in jobs))


def seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def waits(jobs: Iterable[Runs]) -> str:
    """The median and the longest wait of jobs that began."""
    found = [runs.wait for runs in jobs if runs.starts and runs.error is None]
    return f"{seconds(median(found))}, {seconds(max(found))}" if found else "none began"


def of(running: Running, kind: str) -> list[Runs]:
    return [runs for runs in running.jobs().values() if runs.kind == kind]


@contextmanager
def customers(running: Running, every: float, mails: bool = False) -> Iterator[None]:
    """An OTP each `every` seconds until the block ends; with `mails` a short mail beside each tenth: a service that is used."""
    over = threading.Event()

    def ask() -> None:
        number = 0
        while not over.wait(every):
            running.enqueue("otp", f"otp-{time.time():.3f}")
            number += 1
            if mails and number % 10 == 0:
                running.enqueue("mail", f"live-{number}", 0.1)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def fill(running: Running, count: int, length: float = 1.0, kind: str = "mail", name: str = "mail") -> None:
    for number in range(count):
        running.enqueue(kind, f"{name}-{number}", length)


def settle(running: Running, limit: float = LIMIT) -> None:
    """Wait until all that was accepted has run, and watch a while longer."""
    finish(running, limit)
    time.sleep(AFTER)


def finish(running: Running, limit: float = 15.0) -> None:
    """Wait until each mail and OTP that was accepted has run, but no longer than that."""

    def done() -> bool:
        return all(runs.ends for runs in running.jobs().values() if runs.error is None and runs.kind in ("mail", "otp"))

    running.until(done, limit)


def _at_work(mails: list[Runs]) -> bool:
    """Whether some are done and three, one a place, have begun."""
    return sum(bool(runs.ends) for runs in mails) >= 6 and sum(len(runs.starts) > len(runs.ends) for runs in mails) == 3


def kill(running: Running) -> Row:
    """All processes are killed while 40 mails of a second wait and three run."""
    fill(running, 40)
    with customers(running, 1.0, mails=True):
        running.until(lambda: _at_work(of(running, "mail")), 60)
        running.kill()
        struck = time.time()
        settle(running)
    finish(running)
    mails = of(running, "mail")
    cut = [runs for runs in mails if runs.starts and runs.starts[0] <= struck and (not runs.ends or runs.ends[0] > struck)]
    back = [runs.starts[1] - struck for runs in cut if len(runs.starts) > 1]
    others = [runs for runs in mails if runs.starts and runs.starts[0] > struck and runs.sent < struck]
    again = f"{seconds(min(back))} to {seconds(max(back))}" if back else "never" if cut else "none was"
    return {
        "cut off": str(len(cut)),
        "lost": lost([*mails, *of(running, "otp")]),
        "run to the end twice": twice([*mails, *of(running, "otp")]),
        "those cut off run again after": again,
        "the other mails begin after": f"{seconds(min(runs.starts[0] for runs in others) - struck)}" if others else "none did",
        "OTP waits, median and longest": waits(of(running, "otp")),
    }


def redis(running: Running) -> Row:
    """Redis is killed and three seconds away, while 30 mails of a second wait and five OTPs a second are sent."""
    fill(running, 30)
    with customers(running, 0.2):
        time.sleep(5)
        running.kill_redis()
        time.sleep(3)
        running.start_redis()
        returned = time.time()
        time.sleep(15)
    with customers(running, 5.0, mails=True):
        settle(running)
    finish(running)
    otps, mails = of(running, "otp"), of(running, "mail")
    first = min((runs.starts[0] for runs in [*otps, *mails] if runs.starts and runs.starts[0] > returned), default=None)
    return {
        "calls refused": f"{sum(runs.error is not None for runs in otps)} of {len(otps)}",
        "refused, but run": str(sum(bool(runs.starts) for runs in otps if runs.error)),
        "lost": lost([*otps, *mails]),
        "run to the end twice": twice([*otps, *mails]),
        "jobs begin after its return": seconds(first - returned) if first else "never",
        "restarts of processes": str(running.restarts),
        "OTP waits, median and longest": waits(otps),
    }


def callback(running: Running) -> Row:
    """Twenty mails whose webhook takes five seconds and is refused at first; then twenty mails without a webhook."""
    running.shop.slow, running.shop.refused = 5.0, 1
    with customers(running, 1.0):
        fill(running, 20, 0.2, kind="told", name="told")
        fill(running, 20, 0.2)
        running.until(lambda: len(running.shop.told) >= 20, 400)
        time.sleep(10)
    told = running.shop.told
    plain = [runs for job, runs in running.jobs().items() if job.startswith("mail-")]
    return {
        "callbacks delivered": f"{len(told)} of 20",
        "delivered twice": str(sum(len(times) > 1 for times in told.values())),
        "the last one after": seconds(max(max(times) for times in told.values()) - plain[0].sent) if told else "never",
        "other mails wait, median and longest": waits(plain),
        "OTP waits, median and longest": waits(of(running, "otp")),
    }


def campaign(running: Running) -> Row:
    """OTPs to an idle service; then amid 150 mails of a second, one by one and twenty at once."""
    for number in range(20):
        running.enqueue("otp", f"idle-{number}")
        time.sleep(0.3)
    fill(running, 150)
    time.sleep(3)
    for number in range(20):
        running.enqueue("otp", f"amid-{number}")
        time.sleep(0.5)
    fill(running, 20, kind="otp", name="burst")
    running.until(lambda: all(runs.ends for runs in of(running, "otp")), 120)
    jobs = running.jobs()

    def named(name: str) -> list[Runs]:
        return [runs for job, runs in jobs.items() if job.startswith(name)]

    burst = [runs for runs in named("burst") if runs.starts]
    return {
        "OTP to an idle service": waits(named("idle")),
        "one amid the campaign": waits(named("amid")),
        "the last of twenty at once": seconds(max(runs.starts[0] for runs in burst) - min(runs.sent for runs in burst)),
    }


def poison(running: Running) -> Row:
    """Two jobs that kill their process each time, before 20 mails."""
    fill(running, 2, kind="poison", name="poison")
    fill(running, 20)
    with customers(running, 1.0, mails=True):
        settle(running)
    finish(running)
    ran = [len(runs.starts) for runs in of(running, "poison")]
    mails = [runs for job, runs in running.jobs().items() if job.startswith("mail-")]
    ended = [runs.ends[0] - mails[0].sent for runs in mails if runs.ends]
    return {
        "runs of each poison": f"{ran[0]}, {ran[1]}",
        "other jobs lost": lost([*of(running, "mail"), *of(running, "otp")]),
        "run to the end twice": twice([*of(running, "mail"), *of(running, "otp")]),
        "the 20 mails done after": seconds(max(ended)) if len(ended) == len(mails) else "never",
        "restarts of processes": str(running.restarts),
        "OTP waits, median and longest": waits(of(running, "otp")),
    }


def deploy(running: Running) -> Row:
    """TERM two seconds before a full minute, KILL ten seconds later, new processes; one mail takes 25 seconds, 30 others a second each."""
    time.sleep((48 - time.time()) % 60)
    running.enqueue("mail", "long", 25.0)
    time.sleep((55 - time.time()) % 60)
    fill(running, 30)
    minute = (time.time() // 60 + 1) * 60
    with customers(running, 0.5):
        time.sleep(max(0.0, minute - 2 - time.time()))
        took = running.deploy()
        time.sleep(30)
    with customers(running, 5.0, mails=True):
        settle(running, 240.0)
    finish(running)
    jobs = running.jobs()
    ticks = [at for at in jobs["tick"].starts if minute - 1 < at < minute + 59] if "tick" in jobs else []
    mails, otps = of(running, "mail"), of(running, "otp")
    long = jobs["long"]
    return {
        "stop takes": seconds(took),
        "lost": lost([*mails, *otps]),
        "run to the end twice": twice([*mails, *otps]),
        "runs of the long mail": f"{len(long.starts)}, {'done' if long.ends else 'never done'}"
        + (f" after {seconds(long.ends[0] - minute)}" if long.ends else ""),
        "tick of that minute": f"{len(ticks)} run" + (f", {seconds(ticks[0] - minute)} late" if ticks else ""),
        "OTP waits, median and longest": waits(otps),
    }


#: By name; those that measure waits of milliseconds are run one contender after the other.
SCENARIOS: dict[str, Callable[[Running], Row]] = {
    "kill": kill, "redis": redis, "callback": callback, "campaign": campaign, "poison": poison, "deploy": deploy,
}  # fmt: skip
ALONE = ("campaign",)
