"""Which queues somebody may see: by the rule of workers' wildcards."""

from __future__ import annotations

import pytest

from fusion.kernel.scope import EVERYTHING, Scope
from fusion.runtime.served_queues import ServedQueues
from fusion.store.layout.names import is_reserved
from fusion.web.auth import ANONYMOUS
from fusion.web.exchange import Actor, Request

NAMES = ["sms", "sms-otp", "Sms", "email", "e.mail", "a", "b1", "s", "smsx", "x-sms"]


@pytest.mark.parametrize(
    "given", [["sms"], ["sms*"], ["sms-*", "email"], ["?"], ["[ab]*"], ["[!a]*"], ["*"], ["e.mail"], ["*sms*"]]
)
def test_a_scope_sees_what_a_worker_of_these_names_serves(given: list[str]) -> None:
    scope, served = Scope(tuple(given)), ServedQueues(given)
    assert [scope.allows(name) for name in NAMES] == [served.serves(name) for name in NAMES]
    assert scope.of(NAMES) == [name for name in NAMES if served.serves(name)]
    assert not scope.all


def test_no_wildcard_stands_for_a_queue_of_fusions_own() -> None:
    for name in ("failed", "_callbacks", "_scheduler"):
        assert is_reserved(name)
        assert not Scope(("*", "_*", "f*")).allows(name)
        assert Scope((name,)).allows(name)
        assert EVERYTHING.allows(name)
    assert not Scope(()).allows("sms")


def test_the_audit_name_distinguishes_anonymous_callers_from_tokens() -> None:
    assert Request("GET", "/", {}, client="10.0.0.1", actor=ANONYMOUS).who() == "anonymous@10.0.0.1"
    assert Request("GET", "/", {}, client="10.0.0.1", actor=Actor("anonymous", frozenset())).who() == "token:anonymous"
    assert Request("GET", "/", {}, actor=ANONYMOUS).scope is EVERYTHING
    assert not Request("GET", "/", {}).scope.allows("sms")
