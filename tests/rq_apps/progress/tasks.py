"""Tasks of a web application that shows how far each is."""

from __future__ import annotations

import os
import time

from rq import get_current_job


def _set_progress(progress):
    job = get_current_job()
    if job:
        job.meta["progress"] = progress
        job.save_meta()


def export_posts(user, posts, upload):
    """Waits in the middle until the upload is there."""
    _set_progress(0)
    found = []
    for number in range(1, posts + 1):
        found.append(f"{user}: post {number}")
        _set_progress(100 * number // posts)
        while number == posts // 2 and not os.path.exists(upload):
            time.sleep(0.05)
    return {"user": user, "posts": found}


def send_mail(to):
    job = get_current_job()
    job.meta["tries"] = job.meta.get("tries", 0) + 1
    job.save_meta()
    if "@" not in to or (to.startswith("late") and job.meta["tries"] < 2):
        raise ValueError(f"{to!r} can't be reached")
    return f"sent to {to}"


def on_failed(job, connection, kind, value, traceback):
    connection.rpush("app:failed", f"{job.id} {kind.__name__}: {value}")
