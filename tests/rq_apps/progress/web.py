"""A Flask application whose slow work is done by RQ; pages poll how far it is."""

from __future__ import annotations

import os

from flask import Flask, jsonify, request
from redis import Redis
from redis.exceptions import RedisError
from rq import Callback, Queue, Retry
from rq.exceptions import InvalidJobOperation, NoSuchJobError
from rq.job import Job

import tasks

app = Flask(__name__)
app.redis = Redis.from_url(os.environ["REDIS_URL"])
app.task_queue = Queue("microblog-tasks", connection=app.redis, default_timeout=600)


def _fetch(task_id):
    try:
        return Job.fetch(task_id, connection=app.redis)
    except (RedisError, NoSuchJobError):
        return None


@app.post("/export")
def export():
    body = request.get_json()
    job = app.task_queue.enqueue(
        "tasks.export_posts",
        body["user"],
        body["posts"],
        upload=body["upload"],
        job_id=body["id"],
        description=f"export of {body['user']}",
        meta={"user": body["user"]},
        result_ttl=3600,
    )
    return jsonify(id=job.id, status=job.get_status(), waiting=len(app.task_queue)), 202


@app.post("/mail")
def mail():
    body = request.get_json()
    job = app.task_queue.enqueue(
        tasks.send_mail,
        body["to"],
        job_id=body["id"],
        retry=Retry(max=body["retries"]) if body["retries"] else None,
        on_failure=Callback("tasks.on_failed"),
        failure_ttl=3600,
    )
    return jsonify(id=job.id), 202


@app.get("/task/<task_id>")
def show(task_id):
    job = _fetch(task_id)
    if job is None:
        return jsonify(error="no such task"), 404
    error = job.exc_info.strip().splitlines()[-1] if job.is_failed and job.exc_info else None
    return jsonify(
        id=job.id,
        status=job.get_status(),
        progress=job.meta.get("progress"),
        meta=job.meta,
        result=job.result,
        error=error,
        description=job.description,
        finished=job.is_finished,
        function=job.func_name,
        queue=job.origin,
    )


@app.post("/task/<task_id>/cancel")
def cancel(task_id):
    try:
        _fetch(task_id).cancel()
    except InvalidJobOperation as error:
        return jsonify(error=type(error).__name__), 409
    return jsonify(status=_fetch(task_id).get_status())


@app.delete("/task/<task_id>")
def delete(task_id):
    _fetch(task_id).delete()
    return "", 204


@app.get("/tasks")
def overview():
    queue = app.task_queue
    return jsonify(
        queued=queue.job_ids,
        failed=queue.failed_job_registry.get_job_ids(),
        finished=sorted(queue.finished_job_registry.get_job_ids()),
        started=queue.started_job_registry.get_job_ids(),
        canceled=queue.canceled_job_registry.get_job_ids(),
        told=[line.decode() for line in app.redis.lrange("app:failed", 0, -1)],
    )
