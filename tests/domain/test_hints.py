"""What RQ's names that Fusion does not have lead to: an error that names what to use, and nothing for those who don't err."""

from __future__ import annotations

import copy
import importlib
import pickle
import re
import subprocess
import sys

import pytest
import redis

import fusion
from fusion import AsyncQueue, Job, Queue, hints
from fusion.absent import Absent
from fusion.context import CurrentJob
from fusion.enqueue.sending import QueueSteps


def test_an_import_of_an_rq_name_says_what_to_use() -> None:
    with pytest.raises(
        ImportError, match=r"^cannot import name 'Worker' from 'fusion': start a worker by .*docs/from-rq\.md has RQ's names"
    ):
        exec("from fusion import Worker")
    with pytest.raises(ImportError, match="use FailedQueue"):
        exec("from fusion import Queue, FailedJobRegistry")
    with pytest.raises(AttributeError, match=r"has no attribute 'Worker': start a worker"):
        fusion.Worker  # noqa: B018
    assert not hasattr(fusion, "Worker") and getattr(fusion, "Worker", None) is None


def test_other_names_fail_as_ever() -> None:
    with pytest.raises(ImportError, match=r"^cannot import name 'nothing' from 'fusion' \("):
        exec("from fusion import nothing")
    with pytest.raises(AttributeError, match=r"^module 'fusion' has no attribute 'nothing'$"):
        fusion.nothing  # noqa: B018


@pytest.mark.parametrize("name", sorted(hints._MODULE))
def test_no_hint_of_the_module_is_for_a_name_that_is_there(name: str) -> None:
    assert name not in fusion._HOME
    with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'fusion': "):
        exec(f"from fusion import {name}")


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in hints._KINDS.items() for name in names])
def test_an_attribute_of_rq_says_what_to_use(kind: str, name: str, conn: redis.Redis) -> None:
    made = {
        "queue": [Queue("q", conn), AsyncQueue("q")],
        "job": [Job("j", {"status": "queued"}, conn)],
        "current": [CurrentJob({b"id": b"j"})],
    }
    for one in made[kind]:
        with pytest.raises(AttributeError) as caught:
            getattr(one, name)
        instead = hints._KINDS[kind][name]
        assert str(caught.value) == (
            f"{type(one).__name__!r} object has no attribute {name!r}: {instead}. docs/from-rq.md has RQ's names"
        )
        assert caught.value.name == name and caught.value.obj is one
        assert not hasattr(one, name)


def test_other_attributes_fail_as_ever(conn: redis.Redis) -> None:
    with pytest.raises(AttributeError, match=r"^'PriorityQueue' object has no attribute 'nothing'$"):
        Queue("q", conn).nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"^'Job' object has no attribute 'nothing'$"):
        Job("j", {}, conn).nothing  # noqa: B018


def test_an_error_of_a_property_stays_its_own(conn: redis.Redis) -> None:
    class Own(Job):
        @property
        def to_dict(self) -> str:
            return self.text_that_is_not_there  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match=r"has no attribute 'text_that_is_not_there'$"):
        Own("j", {}, conn).to_dict  # noqa: B018


def test_copies_still_work(conn: redis.Redis) -> None:
    job = Job("j", {"status": "queued"}, conn)
    assert copy.deepcopy(job) == job and copy.copy(Queue("q", conn)) == Queue("q", conn)
    assert pickle.loads(pickle.dumps(Queue("q"))) == Queue("q")


def test_a_program_without_a_mistake_does_not_load_the_hints() -> None:
    code = "import sys, fusion; from fusion import Queue, Job, get_current_job; Queue('q'); print('fusion.hints' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_a_hint_names_of_fusion_is_there() -> None:
    """Every capitalised name after `use` is one of the package's."""
    named = {word for text in hints._MODULE.values() for word in re.findall(r"^use ([A-Z]\w+)", text)}
    assert named >= {"FailedQueue", "Batch"}
    for word in named:
        assert hasattr(importlib.import_module("fusion"), word), word


def test_each_absent_name_has_a_hint() -> None:
    kinds = {"queue": QueueSteps, "job": Job, "current": CurrentJob}
    for kind, owner in kinds.items():
        assert {name for name, member in vars(owner).items() if isinstance(member, Absent)} == set(hints._KINDS[kind])
        assert not any(hasattr(owner, name) for name in hints._KINDS[kind])


def test_a_name_of_another_base_or_of_the_instance_is_there(conn: redis.Redis) -> None:
    class Keyed:
        key = "of a base"

    class Own(Queue, Keyed):
        pass

    own = Own("q", conn)
    assert own.key == "of a base" and Own.key == "of a base"
    own.job_ids = ["a"]  # type: ignore[attr-defined]
    assert own.job_ids == ["a"]  # type: ignore[attr-defined]
