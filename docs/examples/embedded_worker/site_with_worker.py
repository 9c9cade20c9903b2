"""A small site that brings its worker along: whoever subscribes gets a mail, and no visitor waits for it.

    pip install fusion-queue waitress
    python docs/examples/embedded_worker/site_with_worker.py 5000

or, in that directory, `gunicorn --workers 4 site_with_worker:application`. Then

    curl -d anna@example.com http://127.0.0.1:5000/
    curl http://127.0.0.1:5000/JOB_ID
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from fusion import EmbeddedWorker, Job, Queue

Answer = Iterable[bytes]


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Answer:
    if environ["REQUEST_METHOD"] == "POST":
        address = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
        job = Queue("mail").enqueue("newsletter.send", address)
        return answer(start_response, "202 Accepted", job.id)
    job_id = environ["PATH_INFO"].strip("/")
    job = Job.fetch(job_id)
    return answer(start_response, "200 OK", f"{job.get_status()}: {job.result}")


def answer(start_response: Callable[..., Any], status: str, text: str) -> Answer:
    start_response(status, [("Content-Type", "text/plain")])
    return [f"{text}\n".encode()]


# Each process of the site says so; one of them keeps the worker.
EmbeddedWorker("mail", tasks=["newsletter"]).start()

if __name__ == "__main__":
    from waitress import serve

    serve(application, host="127.0.0.1", port=int(sys.argv[1]))
