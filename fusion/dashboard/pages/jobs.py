"""Search of jobs, and actions on selected ones."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.chosen import TOLD, refusals
from fusion.dashboard.filters import plural, term
from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.words import VERBS, Verb
from fusion.exceptions import InvalidQuery
from fusion.kernel.redaction import printable
from fusion.kernel.states import STATES
from fusion.operations.plan import OperationPlan
from fusion.store.query.fields import FIELDS, IS, PRIORITIES, WITHIN
from fusion.store.query.grammar import Query
from fusion.web.exchange import HttpError

#: Jobs of one page.
_PAGE = 50
#: Most queues and error classes that are offered.
_QUEUES, _ERRORS = 200, 20


def jobs(view: PageRequest) -> dict[str, Any]:
    """Load a page of the jobs that the query matches, or the mistake in the query."""
    query, after = view.args.get("q", ""), view.args.get("after", "")
    found, wrong = None, ""
    try:
        found = view.get("/jobs", query=query or None, after=after or None, limit=_PAGE)
    except HttpError as error:
        if error.status != 422:
            raise
        wrong = str(error)
    verbs = [verb for verb in VERBS.values() if view.may(verb.scope)]
    return {
        "query": query,
        "states": by_state(query),
        "found": found,
        "wrong": wrong,
        "offered": offered(view),
        "fields": {name: example for name, example in FIELDS.items() if name != WITHIN},
        "verbs": verbs,
        "fitting": [verb for verb in verbs if OperationPlan.fits(verb.name, query)],
    }


def by_state(query: str) -> list[tuple[str, str]]:
    """Return for each state its name, and the query with this state."""
    try:
        rest = " ".join(one.text for one in Query.parse(query).terms if one.field != "state")
    except InvalidQuery:
        rest = ""
    return [("all", rest), *((state, f"{term('state', state)} {rest}".strip()) for state in STATES)]


def offered(view: PageRequest) -> list[str]:
    """Return terms to complete a query: states, queues that the viewer may see, the latest errors, and the names of the other fields."""
    queues = [one["name"] for one in view.get("/queues", limit=_QUEUES, kept=10.0)["queues"]]
    groups = view.get("/failures", limit=_ERRORS, kept=60.0)["groups"]
    errors = dict.fromkeys(one["error_class"].rpartition(".")[2] for one in groups if one["error_class"] != "other")
    known = {"state": STATES, "queue": queues, "error": list(errors), "is": IS, "priority": tuple(PRIORITIES)}
    terms = [term(name, value) for name, values in known.items() for value in values if value == printable(value)]
    return terms + [f"{name}:" for name in FIELDS if name not in known and name != WITHIN]


def selected(view: PageRequest) -> str | Said:
    """Apply the chosen action to each selected job."""
    verb, ids = VERBS.get(view.field("do")), list(dict.fromkeys(view.form.get("id", [])))
    if verb is None:
        return Said("Choose what to do with them.", wrong=True)
    if not ids:
        return Said(f"Select the jobs to {verb.word} first.", wrong=True)
    return _begun(view, verb, ids) if verb.asks else _done(view, verb, ids)


def _begun(view: PageRequest, verb: Verb, ids: list[str]) -> Said:
    """Start an operation on just these jobs, for an action that no route for one job has."""
    body = {"action": verb.name, "query": "id:" + ",".join(ids), verb.asks: view.field(verb.asks)}
    operation = view.post("/operations", body)
    return Said(f"{verb.doing} {plural(len(ids), 'selected job')}.", to=f"/operations/{operation['id']}")


def _done(view: PageRequest, verb: Verb, ids: list[str]) -> Said:
    refused = refusals(ids, lambda job_id: act(view, verb.name, job_id))
    done = len(ids) - len(refused)
    told = f"{done} of {len(ids)} {verb.done}." if refused else f"{plural(done, 'job')} {verb.done}."
    reasons = [f"{job_id}: {why}" for job_id, why in list(refused.items())[:TOLD]]
    more = [f"and {len(refused) - TOLD} more"] if len(refused) > TOLD else []
    undo = ("delete_many", tuple(one for one in ids if one not in refused)) if verb.name == "delete" else ("", ())
    return Said(" ".join([told, "; ".join(reasons + more)]).strip(), wrong=bool(refused), undo=undo)


def act(view: PageRequest, name: str, job_id: str) -> Any:
    """Requeue, cancel, stop or delete one job."""
    path = f"/jobs/{quote(job_id, safe='')}"
    return view.delete(path) if name == "delete" else view.post(f"{path}/{name}")


PAGES = (
    Page("/jobs", "jobs.html", "Jobs", jobs, nav="Jobs"),
    PageAction("/jobs", selected),
)
