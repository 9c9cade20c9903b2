"""RQ's `@job(queue, connection=...)`: gives a function `.delay()` and `.enqueue()`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from redis import Redis

from fusion.rq.hints import missing
from fusion.rq.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])


class job:
    """Give a function `.delay(*args, **kwargs)`, and `.enqueue`, which is the same. `depends_on`, `job_id` and `at_front` of a call are
    options; all other keywords are the task's. The decorator allows no worker to run the function: the allow-list does."""

    queue_class: type[Queue] = Queue

    def __init__(
        self,
        queue: Queue | str,
        connection: Redis | None = None,
        timeout: Any = None,
        result_ttl: int | None = None,
        ttl: int | None = None,
        queue_class: type[Queue] | None = None,
        depends_on: Any = None,
        at_front: bool = False,
        meta: dict[Any, Any] | None = None,
        description: str | None = None,
        failure_ttl: int | None = None,
        retry: Any = None,
        on_failure: Any = None,
        on_success: Any = None,
        on_stopped: Any = None,
        webhooks: Any = None,
    ) -> None:
        self.queue, self.connection = queue, connection
        self.queue_class = queue_class or type(self).queue_class
        self.timeout, self.result_ttl, self.ttl, self.failure_ttl = timeout, result_ttl, ttl, failure_ttl
        self.meta, self.depends_on, self.at_front, self.description, self.retry = meta, depends_on, at_front, description, retry
        self.on_success, self.on_failure, self.on_stopped, self.webhooks = on_success, on_failure, on_stopped, webhooks

    def __call__(self, f: F) -> F:
        @wraps(f)
        def delay(*args: Any, **kwargs: Any) -> Any:
            queue = self.queue_class(self.queue, self.connection) if isinstance(self.queue, str) else self.queue
            depends_on, job_id = kwargs.pop("depends_on", None), kwargs.pop("job_id", None)
            at_front = kwargs.pop("at_front", None)
            return queue.enqueue_call(
                f, args, kwargs, self.timeout, self.result_ttl, self.ttl, self.failure_ttl, self.description,
                depends_on or self.depends_on, job_id, self.at_front if at_front is None else at_front, self.meta, self.retry,
                on_success=self.on_success, on_failure=self.on_failure, on_stopped=self.on_stopped, webhooks=self.webhooks,
            )  # fmt: skip

        delays: Any = f
        delays.delay = delays.enqueue = delay
        return f


def __getattr__(name: str) -> Any:
    raise missing(__name__, name)
