"""Workers: their hosts and states; commands to quiet or end them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fusion.dashboard.page import Page, PageAction, PageRequest, Said
from fusion.dashboard.titles import named
from fusion.views.worker import WorkerView

_PAGE = 100
#: Jobs of a worker in the list.
_JOBS = 3
_LIGHTS = {"dead": "bad", "can't load tasks": "bad", "quiet": "warn", "throttled": "warn", "suspended": "warn"}
_TOLD = {
    "quiet": "was ordered to take no more jobs; its running jobs go on",
    "unquiet": "was ordered to take jobs again",
    "stop": "was ordered to end after its running jobs; its supervisor, if it has one, starts another",
}


def workers(view: PageRequest) -> dict[str, Any]:
    """Load a page of the workers, by name."""
    found = view.get("/workers", offset=view.args.get("offset", 0), limit=_PAGE, kept=2.0)
    names = named(view, [job for one in found["workers"] for job in one["jobs"][:_JOBS]])
    return {"found": found, "rows": [_shown(one) for one in found["workers"]], "limit": _PAGE, "named": names}


def worker(view: PageRequest) -> dict[str, Any]:
    """Load one worker."""
    one = _shown(view.get(f"/workers/{quote(view.params['name'], safe='')}"))
    return {"one": one, "named": named(view, one["jobs"])}


def _shown(one: dict[str, Any]) -> dict[str, Any]:
    """Return the worker with the light of its state, and why it takes no jobs."""
    return {**one, "light": _LIGHTS.get(one["state"], "good"), "why": one["unloaded"] or one["throttled"]}


def told(verb: str) -> PageAction:
    """Return the action that sends this command to a worker."""

    def tell(view: PageRequest) -> Said:
        name = view.params["name"]
        view.post(f"/workers/{quote(name, safe='')}/{verb}")
        gone = "/workers" if verb == "stop" else ""  # an idle worker ends at once, and its own page with it
        return Said(f"Worker {name} {_TOLD[verb]}.", to=gone, undo=(verb, (name,)))

    return PageAction(f"/workers/{{name}}/{verb}", tell, "admin")


PAGES: tuple[Page | PageAction, ...] = (
    Page("/workers", "workers.html", "Workers", workers, nav="Workers", group="System"),
    Page("/workers/{name}", "worker.html", "Worker", worker, shows=WorkerView),
    *map(told, _TOLD),
)
