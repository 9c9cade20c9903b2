from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import subprocess
import sys

import pytest
import redis

from fusion import Connection, Queue, Retry
from fusion.decorators import job
from fusion.kernel.importing import resolve
from tests.jobs import basic


@job("email", priority=0, job_timeout="1m", retry=Retry(2), description="a sum", meta={"a": 1})
def total(a: int, *, b: int = 2) -> int:
    """Adds."""
    return a + b


@job()
async def later(n: int) -> int:
    return n


def test_the_function_stays_what_it_was() -> None:
    assert total(1, b=3) == 4
    assert (total.__name__, total.__doc__, str(inspect.signature(total))) == (
        "total",
        "Adds.",
        "(a: 'int', *, b: 'int' = 2) -> 'int'",
    )
    assert asyncio.run(later(3)) == 3


def test_delay_enqueues_with_the_options(conn: redis.Redis) -> None:
    made = total.delay(1, b=3)
    assert (made.origin, made.priority, made.timeout, made.description, made.meta) == ("email", 0, 60, "a sum", {"a": 1})
    assert (made.func_name, made.args, made.kwargs, made.retry) == (
        "tests.domain.test_decorators.total",
        (1,),
        {"b": 3},
        Retry(2),
    )
    assert later.delay(1).origin == "default"
    assert Queue("email").get_job_ids() == [made.id]


def test_enqueueing_the_marked_function_takes_no_options_from_the_mark(conn: redis.Redis) -> None:
    made = Queue("sms").enqueue(total, 1, priority=2)
    assert (made.origin, made.priority, made.timeout, made.func_name) == ("sms", 2, 180, "tests.domain.test_decorators.total")


def test_a_connection_of_its_own_or_the_current_one(conn: redis.Redis, redis_url: str) -> None:
    with Connection(redis_url.replace("db=0", "db=2")) as other:
        assert basic.marked.delay(1).connection is other
        bound = job("sms", connection=conn)(basic.add)
        assert bound.delay(1, 2).connection is conn
    assert Queue("sms").count == 1


def test_the_mark_is_what_workers_go_by() -> None:
    assert resolve("tests.domain.test_decorators.total", ["tasks"]) is total


def test_forgotten_brackets_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"@job\(\)"):

        @job  # type: ignore[arg-type]
        def bare() -> None: ...


def test_a_wrong_option_shows_at_the_latest_with_delay(conn: redis.Redis) -> None:
    with pytest.raises((TypeError, ValueError), match="prioriti"):
        job("sms", prioriti=2)(basic.add).delay(1, 2)
    with pytest.raises(ValueError, match="reserved"):
        job("failed")(basic.add).delay(1, 2)
    assert conn.dbsize() == 0


def printed(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout.strip()


@pytest.mark.parametrize(
    "imported", ["import fusion.decorators", "from fusion import job", "import fusion; fusion.job()(lambda: 0)"]
)
def test_task_modules_stay_lean(imported: str) -> None:
    code = (
        f"import sys; {imported}; from fusion import get_current_job, Retry;"
        "print(sorted({'redis', 'asyncio', 'click', 'fusion.job'} & set(sys.modules)))"
    )
    assert printed(code) == "[]"


@pytest.mark.parametrize(
    "before",
    ["", "import fusion.job", "import fusion; fusion.job.Job", "from fusion.job import Job", "from fusion import Queue, job"],
)
def test_job_of_the_package_is_the_decorator_and_has_the_class(before: str) -> None:
    code = f"""
{before}
from fusion import job
import fusion
assert job("sms")(print_it := lambda a: a) is print_it and print_it.delay
import fusion.job as module
assert fusion.job.Job is job.Job is module.Job is fusion.Job
from fusion.job import Job
assert Job is fusion.Job
from fusion import job
assert job("sms")(print_it) is print_it
assert fusion.job()(print_it) is print_it
"""
    printed(code)


def test_the_decorator_can_be_pickled_and_copied_and_has_no_other_names() -> None:
    for found in (pickle.loads(pickle.dumps(job)), copy.deepcopy(job)):
        assert found is job
    for name in ("__wrapped__", "_mock_methods", "nothing"):
        assert not hasattr(job, name)
    assert pickle.loads(pickle.dumps(total)) is total
