"""Fusion: one supervised worker of four slots, one of them kept for HIGH jobs; the callback is the job's own, delivered by the courier."""

from __future__ import annotations

import os

from benchmarks.compare import service
from benchmarks.compare.contenders import GRACE
from fusion import PriorityQueue, recurring

PACKAGE = "fusion-queue"
ENV = {"FUSION_CALLBACK_ALLOWED_HOSTS": "127.0.0.1", "FUSION_CALLBACK_ALLOW_HTTP": "1"}
HERE = "benchmarks.compare.contenders.on_fusion"
TASKS = "benchmarks.compare.service"


@recurring("* * * * *", queue="mail")
def tick() -> None:
    service.tick()


def commands() -> list[list[str]]:
    places = ["--slots", "4", "--reserve-high", "1", "--tasks", TASKS, "--tasks", HERE]
    return [["run_worker.py", "start", *places, "--schedule", HERE, "--shutdown-timeout", str(GRACE), "otp", "mail"]]


def enqueue(kind: str, job: str, seconds: float) -> None:
    if kind == "otp":
        PriorityQueue("otp").enqueue(f"{TASKS}.otp", job, priority=PriorityQueue.PRIORITY_HIGH)
    elif kind == "poison":
        PriorityQueue("mail").enqueue(f"{TASKS}.poison", job)
    else:
        shop = f"{os.environ['COMPARE_SHOP']}?id={job}" if kind == "told" else None
        PriorityQueue("mail").enqueue(
            f"{TASKS}.mail", job, seconds, priority=PriorityQueue.PRIORITY_LOW, success_task_handler=shop
        )
