"""The soak's producer: `python -m tests.faults.soak.producer SEED JOBS RUSH DIRECTORY`.

Reads from stdin up to which job it may go. Before a call it writes the id to `tried` and the job to `outbox`, after it has returned the id
to `acknowledged`, with that of another that was met in its place: one O_APPEND write each. Killed and started again it goes on with what was
not acknowledged, which is the same jobs: that of an id alone would be another one, once the first has ended.
RUSH more, short ones, come many at a time between the others.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from fusion import Batch, Dependency, Queue, signature
from fusion.chains import _taking
from fusion.enqueue.build import JobData
from fusion.exceptions import BatchClosed, DuplicateJob, FusionError, NoSuchBatchError
from tests.faults.soak import tasks
from tests.faults.soak.groups import EVERY, Group, group
from tests.faults.soak.plan import BETWEEN, QUEUES, RUSH, Job, job, rush_job

#: Seconds; what a producer that died had sent of the callbacks of a batch is given up after a minute, and another one comes in their place.
_OPEN_FOR = 90


class Notes:
    """Lines of a file that outlives the process; their first words are ids."""

    def __init__(self, path: Path) -> None:
        # what a kill left of a last line is none
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        self.known = dict(line.partition(" ")[::2] for line in lines)
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, *lines: str) -> None:
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())


class Outbox:
    """Each job is prepared once, whoever sends it how often."""

    def __init__(self, path: Path) -> None:
        self._notes = Notes(path)

    def prepared(self, specs: Sequence[Job]) -> list[JobData]:
        """What is to be sent for these."""
        found = {spec.id: self._notes.known.get(spec.id) for spec in specs}
        for spec in specs:
            if found[spec.id] is None:
                more: dict[str, Any] = {"enqueue_in": spec.later} if spec.later else {}
                if spec.batch:
                    more["batch"] = spec.batch
                if spec.parents:
                    more["depends_on"] = [Dependency(parent, on_failure=policy) for parent, policy in spec.parents]
                # by its name alone nobody would know that it takes several
                function: Any = tasks.share if spec.function.endswith(".share") else spec.function
                data = Queue.prepare_data(function, spec.args, job_id=spec.id, **more, **spec.options)
                if spec.takes:
                    data = _taking(data)
                found[spec.id] = base64.b64encode(pickle.dumps(data)).decode()
                self._notes.add(f"{spec.id} {found[spec.id]}")
        return [pickle.loads(base64.b64decode(text or "")) for text in found.values()]  # noqa: S301 - our own


def main(seed: int, jobs: int, rush: int, directory: Path) -> None:
    notes = Outbox(directory / "outbox"), Notes(directory / "tried"), Notes(directory / "acknowledged")
    acknowledged = notes[2].known
    allowed, source = 0, sys.stdin.fileno()
    pending = b""
    for n in range(jobs):
        while n >= allowed:
            data = os.read(source, 4096)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            allowed = max([allowed, *map(int, filter(None, lines))])
        spec = job(seed, n)
        if spec.id not in acknowledged:
            _send(spec.queue, [spec], *notes)
        if (n + 1) % EVERY == 0:
            _send_group(group(seed, n // EVERY), *notes)
        if (n + 1) % BETWEEN == 0:
            numbers = range(rush * (n + 1 - BETWEEN) // jobs, rush * (n + 1) // jobs)
            specs = [spec for number in numbers if (spec := rush_job(seed, number)).id not in acknowledged]
            for at in range(0, len(specs), 500):  # at once, so that there are more than can run
                _send(RUSH, specs[at : at + 500], *notes)


def _send_group(found: Group, outbox: Outbox, tried: Notes, acknowledged: Notes) -> None:
    specs = [spec for spec in found.jobs if spec.id not in acknowledged.known]
    if found.batch:
        _send_batch(found, outbox, tried, acknowledged)
    elif found.together and specs:
        _send(specs[0].queue, specs, outbox, tried, acknowledged)
    else:
        for spec in specs:
            _send(spec.queue, [spec], outbox, tried, acknowledged)


def _send_batch(found: Group, outbox: Outbox, tried: Notes, acknowledged: Notes) -> None:
    """Killed and started again it may find the batch open already, or closed."""
    if found.batch in acknowledged.known:
        return
    calls = [spec for spec in found.jobs if spec.batch_as]
    follow = {
        f"on_{spec.batch_as}": signature(spec.function, *spec.args).set(job_id=spec.id, queue=spec.queue, **spec.options)
        for spec in calls
    }
    batches = [Batch(id=found.batch, queue=QUEUES[0], open_for=_OPEN_FOR, keep=1, **follow)]
    if found.inner:
        batches.append(Batch(id=found.inner, queue=QUEUES[0], open_for=_OPEN_FOR, keep=1, parent=found.batch))
    tried.add(*(spec.id for spec in calls))
    if all(_insist(found.batch, partial(_open, batch)) for batch in batches):
        for spec in found.jobs:
            if spec.id not in acknowledged.known and not spec.batch_as:
                _send(spec.queue, [spec], outbox, tried, acknowledged)
    for batch in batches:
        _insist(found.batch, batch.close)
    acknowledged.add(*(spec.id for spec in calls), found.batch)


def _open(batch: Batch) -> None:
    try:
        batch.open()
    except ValueError:  # an earlier call did that much
        for queue, data in filter(None, batch._callbacks):
            try:
                queue.enqueue_many([data])
            except DuplicateJob:
                pass


def _send(queue: str, specs: Sequence[Job], outbox: Outbox, tried: Notes, acknowledged: Notes) -> None:
    """Until Redis has said yes."""
    prepared, ids = outbox.prepared(specs), [spec.id for spec in specs]
    tried.add(*ids)
    sent = _insist(ids[0], lambda: Queue(queue).enqueue_many(prepared))
    if sent:
        acknowledged.add(*(job_id if job.id == job_id else f"{job_id} {job.id}" for job_id, job in zip(ids, sent, strict=True)))


def _insist(what: str, call: Callable[[], Any]) -> Any:
    """Until Redis has said yes, or that it is too late. Else True, or what it said."""
    while True:
        try:
            return call() or True
        except (BatchClosed, NoSuchBatchError) as error:
            print(f"{what}: {error}", file=sys.stderr, flush=True)
            return False
        except (RedisError, FusionError, OSError) as error:
            print(f"{what}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
