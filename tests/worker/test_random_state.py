"""No two jobs draw the same random numbers, whatever their module made and seeded when it was imported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from tests.kit.length import long_case
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers, alone_in_its_process

ENV = {"FUSION_TASKS": "tests.jobs.chance,tests.jobs.chance_numpy"}
#: numpy starts threads otherwise, and is left to the processes.
ALONE = {**ENV, "OPENBLAS_NUM_THREADS": "1"}
MODULES = ["chance", "chance_numpy"]
MODES = pytest.mark.parametrize(
    "mode", [long_case(("--slots", "2"), id="process per job"), pytest.param(("--horses", "2"), id="warm")]
)
_SHARED = "what one job seeds is its neighbours', too: docs/operations.md says so"


def results(conn: redis.Redis, jobs: list[Job]) -> list[Any]:
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in jobs), 30, why="all have run")
    assert {status_of(conn, job.id) for job in jobs} == {"finished"}, field(conn, jobs[0].id, "exc_info")
    return [json.loads(field(conn, job.id, "result") or "null") for job in jobs]


def alike(drawn: list[dict[str, float]]) -> set[str]:
    """The generators that gave two jobs the same number."""
    return {name for name in drawn[0] if len({found[name] for found in drawn}) < len(drawn)}


def draw_apart(workers: Workers, conn: redis.Redis, mode: tuple[str, ...], env: dict[str, str]) -> None:
    workers.start("c", *mode, env=env)
    queue = Queue("c", conn)
    drawn = {module: [queue.enqueue(f"tests.jobs.{module}.draw") for _ in range(12)] for module in MODULES}
    passwords = [queue.enqueue("tests.jobs.chance.password") for _ in range(20)]
    assert {module: alike(results(conn, jobs)) for module, jobs in drawn.items()} == {module: set() for module in MODULES}
    assert len(set(results(conn, passwords))) >= 19


@MODES
def test_every_job_draws_its_own(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    draw_apart(workers, conn, mode, ALONE)


@pytest.mark.long
@MODES
def test_every_job_draws_its_own_where_each_process_imports_the_modules(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis
) -> None:
    draw_apart(workers, conn, mode, {**ALONE, "FUSION_PRELOAD": "off"})


@pytest.mark.long
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(("--slots", "2"), id="process per job", marks=alone_in_its_process(_SHARED)),
        pytest.param(("--horses", "2"), id="warm"),
    ],
)
def test_a_job_that_seeds_makes_no_other_one_predictable(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    workers.start("c", *mode, env=ALONE)
    queue = Queue("c", conn)
    for module in MODULES:
        drawn = []
        for _ in range(4):
            results(conn, [queue.enqueue(f"tests.jobs.{module}.seed_all") for _ in range(2)])
            drawn += results(conn, [queue.enqueue(f"tests.jobs.{module}.draw") for _ in range(2)])
        assert alike(drawn) == set(), module


@pytest.mark.long
def test_nor_one_of_a_module_that_a_warm_process_imports_later(workers: Workers, conn: redis.Redis) -> None:
    workers.start("c", "--horses", "1", env=ENV)
    queue = Queue("c", conn)
    drawn = results(conn, [queue.enqueue("tests.jobs.chance.late", 42) for _ in range(6)])
    for column in zip(*drawn, strict=True):
        assert len(set(column)) == 6, drawn


@pytest.mark.long
def test_what_can_not_be_seeded_is_named_when_the_modules_are_loaded(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("c", env=ALONE)
    (line,) = [line for line in worker.output.splitlines() if "the same state" in line]
    assert "tests.jobs.chance.FIXED (Fixed), tests.jobs.chance_numpy.SEEDS (SeedSequence) in the same state" in line


@pytest.mark.long
def test_the_hook_of_the_docs(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """As it stands in docs/tasks.md."""
    (block,) = re.findall(r"```python\n(# shop/hooks.py.*?)```", (ROOT / "docs/tasks.md").read_text(), re.DOTALL)
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "__init__.py").touch()
    (shop / "hooks.py").write_text(block)
    (shop / "orders.py").write_text(
        "import itertools\nNUMBERS = itertools.count(1)\n\n\ndef number():\n    return next(NUMBERS)\n"
    )
    setting = dict(re.findall(r"(FUSION_\w+)=(\S+)", block))
    assert setting == {"FUSION_AFTER_FORK": "shop.hooks.after_fork"}
    workers.start("c", env={"PYTHONPATH": str(tmp_path), "FUSION_TASKS": "shop.orders", **setting})
    drawn = results(conn, [Queue("c", conn).enqueue("shop.orders.number") for _ in range(6)])
    assert len(set(drawn)) == 6
    assert min(drawn) > 100


@pytest.mark.long
def test_a_hook_that_is_no_function_is_named(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("c", ready=False, env={**ENV, "FUSION_BEFORE_FORK": "tests.jobs.chance.no_such_hook"})
    eventually(lambda: "tests.jobs.chance.no_such_hook can't be imported" in worker.output, why="the hook is named")
