"""Stock RQ beside a fleet of Fusion that is killed at random, on one Redis and one prefix.

`python -m tests.faults.beside --version 3.0.0 [--seconds 600] [--stock kill]`

Prints a report. Exit code 0: no job of ours was lost or stuck or ran more often than promised, none of RQ's was touched (its workers end by
TERM; with `--stock kill` they are killed, and what RQ lost of that is accounted for by id), no key changed its type, and nobody who lived was buried.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults.beside.fleet import BesideFleet, BesideMonkey
from tests.faults.beside.producer import ADOPTED, SHARED, THEIRS, _kind
from tests.faults.rig.conservation import check_ended
from tests.faults.soak.fleet import told_of
from tests.faults.soak.verdict import read_witness
from tests.kit.waiting import eventually
from tests.rq_suite.__main__ import TARGET, sources

#: Strikes and their weights.
STRIKES = {
    "kill horse+worker": 8, "kill horse": 3, "kill worker": 3, "kill fork server": 2, "kill supervisor": 2, "kill scheduler": 2,
    "kill producer": 2, "stop worker": 2, "stop worker and its processes": 1, "end worker": 1,
}  # fmt: skip
TERMS = {"end stock worker": 3, "end rq-scheduler": 1}
KILLS = {"kill stock worker": 2, "kill stock horse": 2, "kill stock worker+horse": 2, "kill rq-scheduler": 1}
#: Seconds between two strikes.
PAUSE = (0.8, 2.4)
#: Seconds for what must come by itself, on a machine that is busy with other things.
PATIENCE = 300.0


class Beside:
    def __init__(self, version: str, seconds: float, seed: int, kill_stock: bool, home: Path) -> None:
        self.version, self.seconds, self.kill_stock = version, seconds, kill_stock
        self.fleet = BesideFleet(home, sources(version))
        self.chance = random.Random(seed)
        self.monkey = BesideMonkey(self.fleet, self.chance)
        self.complaints = self.fleet.complaints
        self.codes: dict[str, int | None] = {}
        self._quiet_since = 0.0

    def run(self) -> None:
        self.fleet.start()
        strikes = STRIKES | (KILLS if self.kill_stock else TERMS)
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            self.monkey.hunt(self.chance.choices(list(strikes), list(strikes.values()))[0])
            self.monkey.rest(self.chance.uniform(*PAUSE))
        self.monkey.end()
        (self.fleet.home / "stop").touch()
        producers = [*self.fleet.producers, self.fleet.stock_producer]
        self._until(lambda: not any(post.alive for post in producers), "the producers have stopped")
        self._until(self._ours_is_quiet, "Fusion's jobs have ended")
        self._until(self._theirs_is_quiet, "RQ's jobs have ended")
        self._until(self.fleet.are_listed, "the list of workers is the living ones")
        self.fleet.sample()
        self.codes = self.fleet.stop()
        self.complaints += [f"{name} ended with {code} when told to stop" for name, code in self.codes.items() if code != 0]
        try:
            eventually(lambda: not self.fleet.left(), 30, why="no process is left")
        except AssertionError as error:
            self.complaints += [str(error), *map(told_of, self.fleet.left())]

    def _until(self, check: Callable[[], bool], why: str) -> None:
        def tended() -> bool:
            self.fleet.tend()
            return check()

        eventually(tended, PATIENCE, 0.2, why)

    def noted(self, kind: str, what: str) -> list[str]:
        path = self.fleet.home / f"{kind}.{what}"
        return path.read_text().split() if path.exists() else []

    def _status(self, names: list[str]) -> dict[str, tuple[str, bool]]:
        """Return the status of each, and True for those that are Fusion's."""
        found = {}
        for at in range(0, len(names), 500):
            some = names[at : at + 500]
            with self.fleet.conn.pipeline(transaction=False) as pipe:
                for name in some:
                    pipe.hmget(f"rq:job:{name}", "status", "seq")
                found |= {
                    name: ((row[0] or b"").decode(), row[1] is not None) for name, row in zip(some, pipe.execute(), strict=True)
                }
        return found

    def _ours_is_quiet(self) -> bool:
        names = self.noted("fusion", "tried") + self.noted("door", "tried")
        return all(status in ("", "finished", "failed", "canceled") for status, _ in self._status(names).values())

    def _theirs_is_quiet(self) -> bool:
        names, ended = self.noted("stock", "acknowledged"), ("finished", "failed")
        open_ones = [name for name, (status, _) in self._status(names).items() if status not in ended]
        quiet = not self._at_work() and not set(open_ones) & self._waiting()
        self.fleet.revive_scheduler()
        self._quiet_since = (self._quiet_since or time.monotonic()) if quiet else 0.0
        return not open_ones or (quiet and time.monotonic() - self._quiet_since > 5)

    def _waiting(self) -> set[str]:
        """Ids to which RQ still comes by itself."""
        conn, found = self.fleet.conn, set[bytes]()
        for queue in (THEIRS, SHARED, ADOPTED):
            found |= {*conn.lrange(f"rq:queue:{queue}", 0, -1), *conn.zrange(f"rq:scheduled:{queue}", 0, -1)}
        return {one.decode() for one in found | {*conn.zrange("rq:scheduler:scheduled_jobs", 0, -1)}}

    def _at_work(self) -> bool:
        """True while one of RQ's workers that live is busy."""
        conn, alive = self.fleet.conn, {post.pid for post in self.fleet.stock_workers if post.alive}
        return any(
            int(pid or 0) in alive and state == b"busy"
            for pid, state in (conn.hmget(key, "pid", "state") for key in conn.smembers("rq:workers"))
        )

    # -- judging

    def report(self, took: float) -> bool:
        conn = self.fleet.conn
        runs = Counter[str]()
        for run in read_witness(self.fleet.witness).values():
            runs[run.job_id] += run.began
        stock_runs = Counter(
            line.split()[1] for line in self.fleet.stock_witness.read_text().splitlines() if line.startswith("begin")
        )
        known = {kind: self.noted(kind, "acknowledged") for kind in ("fusion", "door", "stock")}
        tried = {kind: self._status(self.noted(kind, "tried")) for kind in known}
        ours = [*known["fusion"], *known["door"]]
        ours += [
            name
            for kind in ("fusion", "door")
            for name, (status, _) in tried[kind].items()
            if status and name not in set(known[kind])
        ]
        adopted = [name for name, (_, is_ours) in tried["stock"].items() if is_ours]
        try:
            states = check_ended(conn, [*ours, *adopted], runs + stock_runs)
            self._check_ours(ours, states, runs)
        except AssertionError as error:
            self.complaints.append(str(error))
            states = {}
        lost = self._check_theirs([name for name in known["stock"] if name not in set(adopted)], tried["stock"], stock_runs)
        version = f"RQ {self.version}, rq-scheduler"
        print(f"{version} beside Fusion on Redis {conn.info('server')['redis_version']}, {self.seconds:g} s, {took:.0f} s in all")
        print(f"  strikes: {', '.join(f'{what} {count}' for what, count in sorted(self.monkey.kinds.items()))}")
        for kind, names in known.items():
            some = [status for name in names if (status := tried[kind][name][0])]
            print(f"  {kind}: {len(names)} acknowledged, {dict(Counter(some))}")
        print(f"  of RQ's jobs {len(adopted)} were adopted: {dict(Counter(states.get(name, '?') for name in adopted))}")
        print(f"  Fusion's jobs that ran more than once: {sum(runs[name] > 1 for name in ours)}, each explained by its events")
        print(f"  jobs of fusion.rq that failed as their process was killed: {self._killed(known['door'], states)}")
        print(
            f"  RQ's jobs that ran more than once: {sum(stock_runs[name] > 1 for name in known['stock'] if name not in set(adopted))}"
        )
        print(f"  RQ lost or left {sum(map(len, lost.values()))} jobs of {len(known['stock'])}")
        for what, names in lost.items():
            print(f"    {what}: {' '.join(names)}")
        print(f"  {self.fleet.samples} samples of the types of {len(self.fleet.types)} keys")
        print(f"  ends of rq-scheduler that nobody caused: {self.fleet.clock_ends}")
        for complaint in self.complaints:
            print(f"WRONG: {complaint}")
        return not self.complaints

    def _killed(self, names: list[str], states: dict[str, str]) -> int:
        return sum(states.get(name) == "failed" and _kind(name) != "refuse" for name in names)

    def _check_ours(self, names: list[str], states: dict[str, str], runs: Counter[str]) -> None:
        for name in names:
            kind, status = _kind(name), states[name]
            why = (self.fleet.conn.hget(f"rq:job:{name}", "reason") or b"").decode()
            is_door = name.startswith("door")
            if kind == "refuse":
                right = status == "failed" and ("ValueError" in why or is_door)
            else:
                right = status == "finished" or (is_door and status == "failed" and "ValueError" not in why)
            if not right:
                self.complaints.append(f"{name} ({kind}) is {status}: {why}")
            if is_door and kind != "flaky" and runs[name] > 1:
                self.complaints.append(f"{name} ({kind}) has no retry, and ran {runs[name]} times")

    def _check_theirs(self, names: list[str], tried: dict[str, tuple[str, bool]], runs: Counter[str]) -> dict[str, list[str]]:
        """What RQ lost or left, by id. Each process of its that was struck may have lost one job: RQ loses the one that a worker has taken and
        not begun, also when it has to end; and leaves the child of such a job. A complaint for more."""
        conn, lost, caused = self.fleet.conn, dict[str, list[str]](), 0
        ended = {
            word: {one for queue in (THEIRS, SHARED, ADOPTED) for one in conn.zrange(f"rq:{word}:{queue}", 0, -1)}
            for word in ("finished", "failed")
        }
        for name in names:
            status = tried[name][0]
            meant = "failed" if _kind(name) in ("refuse", "flaky") else "finished"
            is_there = name.encode() in ended.get(status, ())
            if status == meant and is_there and 1 <= runs[name] <= (2 if _kind(name) == "flaky" else 1):
                continue
            what = f"{status or 'no record'}{'' if is_there else ', in no registry of ended ones'}, ran {runs[name]} times"
            lost.setdefault(what, []).append(name)
            caused += status != "deferred"
        strikes = sum(count for what, count in self.monkey.kinds.items() if "stock" in what or "rq-scheduler" in what)
        if caused > strikes:
            self.complaints.append(f"RQ lost or left {caused} jobs, and was struck {strikes} times")
        return lost


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.beside", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--version", default=TARGET, help="of RQ")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long it is struck")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stock", choices=("end", "kill"), default="end", help="end RQ's processes by TERM, or kill them")
    parser.add_argument("--keep", action="store_true", help="keep the directory of a run that passed, too")
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="beside", dir="/tmp"))  # a unix socket's path must be short
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun, passed, run = time.monotonic(), False, None
    try:
        run = Beside(asked.version, asked.seconds, asked.seed, asked.stock == "kill", home)
        try:
            run.run()
        except AssertionError as error:
            run.complaints.append(str(error))
        passed = run.report(time.monotonic() - begun)
    finally:
        if run is not None:
            if not passed:
                print("strikes:", *run.monkey.log, sep="\n  ")
                print(f"logs and witnesses: {home}")
            run.fleet.close()
        if passed and not asked.keep:
            shutil.rmtree(home, ignore_errors=True)
    print("passed" if passed else f"FAILED: seed {asked.seed}")
    return 0 if passed else 1
