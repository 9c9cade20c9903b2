"""Who changed what, over HTTP: every route that changes something leaves an entry, and who sees which."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion.audit import audited
from fusion.kernel.actions import ACTIONS
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.read.audit_inspector import AuditInspector
from fusion.web.api import Api
from fusion.web.exchange import Actor, HttpError, Request, Response
from fusion.web.routing import SCOPES, Route
from tests.web.conftest import Fail
from tests.web.strangers import Caller
from tests.web.test_access import GOOD, ROUTES, furnish


def _ask(conn: redis.Redis, action: str, *, query: str = "", scope: Scope = EVERYTHING, **params: str) -> Response:
    import json

    (route,) = [route for route in Api(conn, ["tests.jobs"]).routes() if route.action == action][:1]
    body = json.dumps(GOOD[action][1] or {}).encode()
    headers = {"content-type": "application/json"}
    actor = Actor("billing", frozenset(SCOPES), scope)
    request = Request(route.method, route.path, headers, query, client="10.0.0.9", length=len(body), read=lambda size: body)
    request.params, request.actor = {**GOOD[action][0], **params}, actor
    return route.handler(request)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.changes], ids=lambda route: route.action)
def test_each_change_leaves_an_entry(conn: redis.Redis, fail: Fail, route: Route) -> None:
    furnish(conn, fail, route.action)
    outcome = "ok"
    try:
        status = _ask(conn, route.action).status
    except HttpError as error:
        status, outcome = error.status, error.code
    assert status == GOOD[route.action][2]
    found = AuditInspector(conn).entries()
    if not ACTIONS[route.action].recorded:
        assert found == []
        return
    (entry,) = found
    assert (entry.who, entry.outcome, entry.details["client"]) == ("token:billing", outcome, "10.0.0.9")
    assert entry.action == route.action
    if params := GOOD[route.action][0]:
        assert entry.target == " ".join(params.values())
    if "queues/{name}" in route.path or "/jobs/{id}" in route.path or "/trash/{id}" in route.path:
        assert entry.queues == ("sms",)


def test_what_was_refused_stands_there_too(conn: redis.Redis) -> None:
    for params in ({"id": "nobody"}, {"id": "no id"}):
        with pytest.raises(HttpError):
            _ask(conn, "stop", **params)
    assert [(entry.target, entry.outcome) for entry in AuditInspector(conn).entries()] == [
        ("no id", "no_such_job"),
        ("nobody", "no_such_job"),
    ]


def test_a_token_for_some_queues_sees_only_their_audit_entries(conn: redis.Redis) -> None:
    for queues in (("sms",), ("sms", "email"), ("email",), ()):
        with audited(conn, "a@b", "x", "+".join(queues), queues):
            pass

    def seen(scope: Scope, query: str = "") -> list[Any]:
        import json

        return [entry["target"] for entry in json.loads(_ask(conn, "audit", scope=scope, query=query).body)["entries"]]

    assert seen(EVERYTHING) == [None, "email", "sms+email", "sms"]
    assert seen(Scope(("sms",))) == ["sms"]
    assert seen(Scope(("sms", "e*"))) == ["email", "sms+email", "sms"]
    assert seen(Scope(())) == []
    assert seen(EVERYTHING, "limit=2&since=1h&who=A@*") == [None, "email"]
    assert seen(EVERYTHING, "action=y") == []


def test_old_names_of_actions_are_read_as_those_of_today(conn: redis.Redis) -> None:
    old = {was: action.name for action in ACTIONS.values() for was in action.was}
    assert len(old) == 10 and not old.keys() & ACTIONS.keys()
    for number, was in enumerate(old):
        conn.xadd("rq:audit", {"nonce": f"n{number}", "who": "a", "action": was, "target": "t"})
    shown = Caller(conn).ask("GET", "/api/v1/audit").json["entries"]
    assert [one["action"] for one in reversed(shown)] == list(old.values())
    for was, name in old.items():
        for asked in (was, name):
            found = Caller(conn).ask("GET", f"/api/v1/audit?action={asked}").json["entries"]
            assert [one["action"] for one in found] == [name]


#: Done to many jobs over HTTP only by an operation.
BY_QUERY = {"quarantine", "reprioritise"}


def test_every_change_over_http_is_an_action_with_its_scope() -> None:
    changing = [route for route in ROUTES if route.changes]
    assert {route.action for route in changing} == {name for name, one in ACTIONS.items() if one.scope and name not in BY_QUERY}
    assert all(route.scope == ACTIONS[route.action].scope for route in changing)
