"""Tasks that work with the batch that they are in."""

from __future__ import annotations

from pathlib import Path

from fusion import Batch, get_current_job, job


def spread(count: int, depth: int = 0) -> str:
    """Add `count` jobs to the own batch, which do the same one level less deep."""
    batch = get_current_job().batch
    for _ in range(count):
        batch.enqueue(spread, count, depth - 1) if depth else batch.enqueue("tests.jobs.basic.add", 1, 2)
    return batch.id


def inner(count: int) -> str:
    """A batch inside the own one."""
    with Batch(parent=get_current_job().batch, queue=get_current_job().origin) as batch:
        for n in range(count):
            batch.enqueue("tests.jobs.basic.echo", n)
    return batch.id


@job("q")
def total(word: str) -> list[object]:
    """What the jobs of its batch returned, as one that is called back sees it."""
    batch = get_current_job().batch
    return [word, batch.status, [result.result for result in batch.results()]]


def when_there(path: str) -> str:
    """Fail until that file is there."""
    if not Path(path).exists():
        raise FileNotFoundError(path)
    return "there"


@job("q", timeout=60)
def joined(first: str, second: str) -> str:
    """Both, one behind the other."""
    return first[-1] + second
