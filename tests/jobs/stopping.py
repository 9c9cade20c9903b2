"""Tasks that are stopped while they run. Each notes `here` when it may be, and what its clean-up came to."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from fusion import JobStopped, get_current_job
from tests.jobs.basic import witness


def cleans_up(path: str, seconds: float = 0.3) -> None:
    """Its clean-up takes longer than the signal needs to come again."""
    try:
        witness(path, "here")
        time.sleep(60)
    finally:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
        witness(path, "cleaned")


def fails_on_its_way_out(path: str) -> None:
    try:
        witness(path, "here")
        time.sleep(60)
    finally:
        raise ValueError("the clean-up failed")


def returns_all_the_same(path: str) -> str:
    try:
        witness(path, "here")
        time.sleep(60)
    except JobStopped:
        pass
    return "all the same"


def fails_of_itself_later(path: str) -> None:
    try:
        witness(path, "here")
        time.sleep(60)
    except JobStopped:
        pass
    raise ValueError("of itself")


def stops_itself(path: str) -> None:
    witness(path, "here")
    raise JobStopped("nobody asked")


async def awaits(path: str) -> None:
    """Its clean-up awaits, too."""
    try:
        witness(path, "here")
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.2)
        witness(path, "cleaned")


async def blocks_its_loop(path: str) -> None:
    witness(path, "here")
    while True:
        pass


async def awaits_others(path: str) -> None:
    """Its tasks compute, so that one of them is struck rather than the loop."""

    async def computes() -> None:
        while True:
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(computes())
        witness(path, "here")


def threads(path: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(time.sleep, 60)
        witness(path, "here")


def waits_for_a_thread(path: str) -> None:
    thread = threading.Thread(target=time.sleep, args=(60,), daemon=True)
    thread.start()
    witness(path, "here")
    thread.join()


def runs_a_program(path: str) -> None:
    subprocess.run(["/bin/sh", "-c", 'echo here $1 $$ >>"$0"; sleep 60', path, os.environ.get("NAME", "-")], check=True)


def told(job: object, connection: object) -> None:
    """A callback on_stopped."""
    current = get_current_job()
    assert current is job
    assert connection is None
    witness(current.args[0], "told")


def sleeps_in_its_callback(job: object, connection: object, result: object) -> None:
    witness(result, "here")  # type: ignore[arg-type]
    time.sleep(0.7)


def finishes(path: str) -> str:
    return path


def short(path: str, seconds: float) -> str:
    """Ends by itself about when it is stopped."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.0005)
    return witness(path, "done")
