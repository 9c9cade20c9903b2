"""The chaos soak: a fleet of real processes runs jobs of every kind while each of them, and Redis, is killed, stopped and cut off.

`python -m tests.faults.soak --seed 1 [--jobs 10000] [--kills 215] [--worker-args="--horses 2" --rush 40000]`

Prints a report; exit code 0: nothing was lost, stuck, in two places or committed by one that did not hold it. What a run draws is its
seed's; when exactly a strike meets what is the machine's, so a seed that fails is run again to see whether it always does.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import fusion
from fusion.cron.scheduler import Scheduler
from fusion.store.read.event_inspector import EventInspector
from tests.faults.rig.conservation import check_conservation, leftovers, memberships
from tests.faults.soak.fleet import Fleet, told_of
from tests.faults.soak.groups import groups
from tests.faults.soak.history import History, aof_of
from tests.faults.soak.monkey import Monkey
from tests.faults.soak.plan import KILLS, LEASE, TASKS, Job, job, rush_job, strikes
from tests.faults.soak.relations import Ties, read_acknowledged, read_steps
from tests.faults.soak.sharing import BEHIND, told_beside
from tests.faults.soak.verdict import Findings, Recovery, delivered, judge, read_witness, recovery, told
from tests.kit.waiting import eventually
from tests.relay.harness import is_delivered

#: Seconds between two strikes.
PAUSE = (0.15, 0.85)
#: Seconds for what must come by itself: not a promise, but the end of patience on a machine that is busy with other things.
PATIENCE = 300.0

#: A line of the report, if a promise does not hold.
BROKEN = "  a promise is broken, see above"


class Soak:
    def __init__(self, seed: int, jobs: int, rush: int, kills: int, worker_args: list[str], home: Path) -> None:
        self.seed, self.jobs, self.rush = seed, jobs, rush
        self.tied = [spec for found in groups(seed, jobs) for spec in found.jobs]
        self.fleet = Fleet(home, seed, jobs, rush, worker_args, self.tied)
        self.monkey = Monkey(self.fleet, random.Random(f"{seed}:monkey"))
        self.strikes = strikes(seed, kills)
        self.times: dict[str, float] = {}
        self.complaints: list[str] = []
        self.put_off = 0

    def run(self) -> None:
        self.fleet.start()
        cron = Scheduler(self.fleet.conn)
        cron.every(1, f"{TASKS}.tick", id="tick", queue="steady", misfire="all", result_ttl=86400)
        cron.every(
            1,
            f"{TASKS}.effect",
            args=(1.1,),
            id=BEHIND,
            queue="steady",
            overlap="queue",
            misfire="all",
            result_ttl=86400,
            priority="high",
        )
        self._timed("strikes", self._strike)
        self._timed("drain", lambda: self._drain(cron))
        self._timed("registries", self._await_registries)
        self._timed(
            "relay", lambda: self._until(lambda: is_delivered(EventInspector(self.fleet.conn)), "the relay has delivered all")
        )
        codes = self.fleet.stop()
        self.complaints += [f"{name} ended with {code} when told to stop" for name, code in codes.items() if code != 0]
        self._timed("processes", self._await_processes)
        self._check_lists()
        self.complaints += leftovers(self.fleet.conn)

    def _check_lists(self) -> None:
        """Nobody is listed any more. Schedulers and relays that were killed are, as dead, for a minute, so that a person can see it."""
        conn, killed = self.fleet.conn, {strike.pid for strike in self.monkey.log}
        listed = [key.decode() for key in conn.smembers("rq:workers")]
        for kind in ("schedulers", "relays"):
            listed += [name.decode() for name in conn.zrange(f"rq:{kind}", 0, -1) if int(name.rpartition(b".")[2]) not in killed]
        self.complaints += [f"{name} has ended and is still listed" for name in listed]

    def _timed(self, name: str, do: Callable[[], object]) -> None:
        begun = time.monotonic()
        do()
        self.times[name] = time.monotonic() - begun

    def _strike(self) -> None:
        """As many jobs are let in for each strike that there is work from the first to the last. One that finds nobody to strike at
        is put off, twice at most."""
        chance, order, tries = random.Random(f"{self.seed}:pauses"), list(self.strikes), Counter[str]()
        for done in itertools.count(1):
            if not order:
                return
            name = order.pop(0)
            self.fleet.allow(min(self.jobs, self.jobs * done // len(self.strikes)))
            self.monkey.rest(chance.uniform(*PAUSE))
            if not self.monkey.hunt(name):
                self.put_off += 1
                tries[name] += 1
                if tries[name] <= 2 * self.strikes.count(name):
                    order.insert(min(len(order), 3), name)

    def _drain(self, cron: Scheduler) -> None:
        self.monkey.end()
        producer = self.fleet.producer
        assert producer is not None
        self._until(lambda: self.fleet.producer is not None and self.fleet.producer.poll() == 0, "the producer is done")
        cron.pause("tick")
        cron.pause(BEHIND)
        self._until(self._is_quiet, "no job is queued, scheduled, blocked or started")

    def _until(self, check: Callable[[], bool], why: str) -> None:
        """With the fleet kept up meanwhile."""

        def tended() -> bool:
            self.fleet.tend()
            return check()

        eventually(tended, PATIENCE, 0.1, why)

    def _is_quiet(self) -> bool:
        conn = self.fleet.conn
        keys = [key.decode() for key in conn.smembers("rq:queues")]
        sets = ("queue", "wip", "blocked", "deferred")
        waiting = sum(conn.zcard(key.replace("rq:queue:", f"rq:{name}:")) for key in keys for name in sets)
        waiting += conn.zcard("rq:scheduler:scheduled_jobs") + conn.zcard("rq:releasing") + conn.zcard("rq:batches")
        return waiting == 0 and self.fleet.person.is_done

    def _await_registries(self) -> None:
        """Nobody is listed who is dead."""
        self._until(self.fleet.are_listed, "the list of workers is the living ones")

    def _await_processes(self) -> None:
        try:
            eventually(lambda: not self.fleet.left(), 30, why="no process is left")
        except AssertionError as error:
            raise AssertionError("\n  ".join([str(error), *map(told_of, self.fleet.left())])) from None

    def findings(self) -> Findings:
        home = self.fleet.home
        found = memberships(self.fleet.conn)
        try:
            states = check_conservation(self.fleet.conn, found)
        except AssertionError as error:
            self.complaints.append(str(error))
            states = {job_id: places[0] for job_id, places in found.items()}
        acknowledged, met = read_acknowledged(home / "acknowledged")
        batches = {spec.batch for spec in self.tied}
        return Findings(
            plan={
                spec.id: spec
                for spec in (*_specs(job, self.seed, self.jobs), *_specs(rush_job, self.seed, self.rush), *self.tied)
            },
            acknowledged=[name for name in acknowledged if name not in batches],
            tried=set((home / "tried").read_text().split()),
            states=states,
            history=History(aof_of(home)),
            runs=read_witness(self.fleet.witness),
            strikes=self.monkey.log,
            delivered=delivered(self.fleet.events),
            ties=Ties(met, self.fleet.person.answers, read_steps(home / "witness.steps"), told_beside(home / "witness")),
        )

    def report(self, seconds: float) -> bool:
        """Print it; whether all is well."""
        found = self.findings()
        verdict = judge(found)
        kinds = self.monkey.kinds
        kills = sum(count for what, count in kinds.items() if what.startswith("kill "))
        stops = sum(count for what, count in kinds.items() if what.startswith("stop "))
        server = self.fleet.conn.info("server")
        print(f"soak of fusion {fusion.__version__}, seed {self.seed}, Python {platform.python_version()}, {_named(server)}")
        jobs = f"{self.jobs} jobs{f' and a rush of {self.rush}' if self.rush else ''}"
        print(f"  {jobs}, {kills} SIGKILLs, {stops} SIGSTOPs, {sum(kinds.values())} strikes in all, {seconds:.0f} s")
        print("  " + ", ".join(f"{what} {count}" for what, count in sorted(kinds.items())))
        print(f"  strikes put off, as nobody was there: {self.put_off}")
        print(
            f"  {self.jobs / self.times['strikes']:.0f} jobs/s while it was struck; then drained in {self.times['drain']:.1f} s"
        )
        for name, value in verdict.figures.items():
            print(f"  {name}: {value}")
        print(f"  kinds: {_by_kind(found)}")
        print(f"  outcomes refused, as another execution had the job: {self._refused()}")
        history = found.history
        print(f"  {history.claims} claims, {history.transactions} transactions of Redis checked")
        print(f"  claims under a token whose first answer was lost with the worker's entry: {history.reclaims}")
        for line in _recovered(recovery(found)):
            print(line)
        print(
            f"  registries were clean after {self.times['registries']:.1f} s, no process was left after {self.times['processes']:.1f} s"
        )
        for line in [*told(found, verdict), *(f"WRONG: {complaint}" for complaint in self.complaints)]:
            print(line)
        if verdict.wrong:
            print(BROKEN)
        return not (verdict.wrong or self.complaints)

    def _refused(self) -> int:
        return sum(
            log.read_text(errors="replace").count("not accepted: another execution") for log in self.fleet.home.glob("*.log")
        )


def _named(server: dict[str, object]) -> str:
    return f"Valkey {server['valkey_version']}" if "valkey_version" in server else f"Redis {server['redis_version']}"


def _specs(make: Callable[[int, int], Job], seed: int, count: int) -> list[Job]:
    return [make(seed, n) for n in range(count)]


def _recovered(every: list[Recovery]) -> Iterator[str]:
    for what, some in (
        ("while Redis was there", [each for each in every if not each.outage]),
        ("around an outage of Redis", [each for each in every if each.outage]),
    ):
        if some:
            middle, worst = some[len(some) // 2], some[-1]
            seconds = f"median {middle.seconds:.2f} s, worst {worst.seconds:.2f} s (lease {LEASE:g} s)"
            yield f"  from a worker's SIGKILL until its job could be claimed, {what}: {len(some)} times, {seconds}"
            yield f"    the worst: {worst.job_id}, with {', '.join(worst.meanwhile) or 'nothing else'} meanwhile"


def _by_kind(found: Findings) -> str:
    kinds = sorted({spec.kind for spec in found.plan.values()})
    there = {kind: sum(spec.kind == kind for spec in found.plan.values()) for kind in kinds}
    return (
        ", ".join(f"{kind} {count}" for kind, count in there.items())
        + f", ticks {sum(i.startswith('cron-tick-') for i in found.states)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=KILLS, help="SIGKILLs; other strikes in proportion")
    parser.add_argument("--rush", type=int, default=0, help="short jobs besides, enough at a time that pool mode claims ahead")
    parser.add_argument("--worker-args", default="", help='flags for every worker, like "--horses 2"')
    parser.add_argument("--keep", action="store_true", help="keep the directory of a run that passed, too")
    asked = parser.parse_args()
    # Not where temporary files usually go: a unix socket's path must be short.
    home = Path(tempfile.mkdtemp(prefix="soak", dir="/tmp"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun, passed, soak = time.monotonic(), False, None
    try:
        soak = Soak(asked.seed, asked.jobs, asked.rush, asked.kills, shlex.split(asked.worker_args), home)
        try:
            soak.run()
        except AssertionError as error:
            soak.complaints.append(str(error))
            soak.times = {"strikes": 1.0, "drain": 0.0, "registries": 0.0, "processes": 0.0, **soak.times}
        passed = soak.report(time.monotonic() - begun)
    finally:
        if soak is not None:
            if not passed:
                print(f"strikes of seed {asked.seed}:", *soak.monkey.log, sep="\n  ")
                print(f"logs, witness and AOF: {home}")
            soak.fleet.close()
        if passed and not asked.keep:
            shutil.rmtree(home, ignore_errors=True)
    print("passed" if passed else f"FAILED: seed {asked.seed}")
    return 0 if passed else 1
