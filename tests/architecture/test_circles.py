"""No circle of modules, counting what is imported for type checkers alone, too: a reader walks types as well."""

from __future__ import annotations

from collections.abc import Iterator

from tests.architecture.source import imports, modules, parse

#: Nouns that name each other's types, so that a program's type checker sees them: (module, module that it imports for this alone).
NAMED = {
    ("fusion.context", "fusion.batch"),  # get_current_job().batch
    ("fusion.middleware", "fusion.enqueue.hooked"),  # what a hook is given
    ("fusion.rq.results", "fusion.rq.job"),  # RQ's Result.all(job)
    ("fusion.rq.webhook", "fusion.rq.job"),  # RQ's Webhook.get_payload(job)
    ("fusion.rq.cron_scheduler_registry", "fusion.rq.cron"),  # RQ's register(cron_scheduler)
}
#: The package itself re-exports everything, on demand.
FACADE = "fusion"


def _arrows() -> dict[str, set[str]]:
    """Of each module the modules of Fusion that it imports, wherever in its text."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in modules("fusion")}
    found = {}
    for name, path in names.items():
        wanted = {f"{module}.{what}" if f"{module}.{what}" in names else module for _, module, what in imports(parse(path))}
        found[name] = {one for one in wanted if one in names and one not in (name, FACADE)}
    del found[FACADE]
    return found


def _circles(arrows: dict[str, set[str]]) -> Iterator[list[str]]:
    """Groups of modules of which each leads to all others."""
    left = {name: set(to) for name, to in arrows.items()}
    while free := [name for name, to in left.items() if not to & left.keys()]:
        for name in free:
            del left[name]
    while left:
        group = _reached(min(left), left)
        group = {name for name in group if min(left) in _reached(name, left)} or {min(left)}
        if len(group) > 1:
            yield sorted(group)
        left = {name: to for name, to in left.items() if name not in group}


def _reached(start: str, arrows: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    new = {start}
    while new:
        new = {to for name in new for to in arrows.get(name, ())} - found
        found |= new
    return found


def test_no_module_leads_back_to_itself() -> None:
    arrows = {name: {to for to in found if (name, to) not in NAMED} for name, found in _arrows().items()}
    assert list(_circles(arrows)) == [], "cut one arrow: pass the value, or take a Protocol of what is needed"


def test_each_named_type_is_named_and_would_close_a_circle() -> None:
    arrows = _arrows()
    for name, to in NAMED:
        assert to in arrows[name], f"{name} does not import {to} any more"
    for name, to in NAMED:
        others = {one: {at for at in found if (one, at) not in NAMED or (one, at) == (name, to)} for one, found in arrows.items()}
        assert list(_circles(others)), f"{name} -> {to} closes no circle: remove it from NAMED"


def test_a_circle_is_found() -> None:
    assert list(_circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()})) == [["b", "c"]]
