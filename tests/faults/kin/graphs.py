"""Random graphs of jobs, what people do to them, and a small model of what must become of each: nothing of Fusion is in it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

#: Of tasks: returns; raises, also when it is tried again; raises once, and is tried again; raises until it is mended and put back.
KINDS = ("finish", "fail", "flaky", "broken")
_ENDED = ("finished", "failed", "canceled", "stopped", "deleted")


@dataclass(frozen=True)
class Node:
    """`parents`: ids, each with `fail`, `ignore` or `wait`. `wish`: what a person does to it, this many seconds after it was enqueued."""

    id: str
    kind: str
    parents: Mapping[str, str]
    wish: str = ""
    wish_after: float = 0.0


def graph(seed: int, name: str, most: int = 40) -> list[Node]:
    """Parents come before their children."""
    chance = random.Random(f"{seed}:{name}")
    size, density = chance.randint(2, most), chance.choice((0.02, 0.1, 0.3))
    nodes: list[Node] = []
    for n in range(size):
        above = [node.id for node in nodes if chance.random() < density]
        if not above and nodes and chance.random() < 0.7:
            above = [chance.choice(nodes).id]
        parents = {parent: chance.choices(("fail", "ignore", "wait"), (5, 3, 2))[0] for parent in above}
        kind = chance.choices(KINDS, (80, 6, 8, 6))[0]
        wish = chance.choice(("stop", "cancel", "delete")) if chance.random() < 0.08 else ""
        nodes.append(Node(f"{name}-{n}", kind, parents, wish, chance.uniform(0, 2)))
    return nodes


@dataclass(frozen=True)
class Fate:
    """What happened to a job. `answer`: what the person who did something to it was told; `done`: a run of it got to its end."""

    status: str
    reason: str = ""
    answer: str = ""
    done: bool = False


def own_end(node: Node, mended: bool) -> str:
    """Of a job that is let run."""
    return "failed" if node.kind == "fail" or (node.kind == "broken" and not mended) else "finished"


def allowed(node: Node, fates: Mapping[str, Fate], mended: bool) -> set[str]:
    """The states it may be in once nothing moves any more, given what its parents are. `broken`: it failed for a parent's sake."""
    found = _by_parents(node, fates, mended)
    answer = fates[node.id].answer
    if node.wish and answer in ("stopped", "canceled", "deleted"):
        return {answer}
    if node.wish and answer == "pending":
        found.add("stopped" if node.wish == "stop" else "canceled")
    return found


def _by_parents(node: Node, fates: Mapping[str, Fate], mended: bool) -> set[str]:
    breaks, waits, unsure = False, False, False
    for parent, policy in node.parents.items():
        fate = fates[parent]
        if fate.status == "deferred":
            waits = True
        elif fate.status == "finished" or policy == "ignore":
            continue
        elif fate.status == "deleted":  # before, or after it had finished
            breaks, unsure = breaks or not fate.done, unsure or fate.done
        elif policy == "fail":
            breaks = True
        else:
            waits = True
    if breaks:
        return {"broken"}
    return ({"deferred"} if waits else {own_end(node, mended)}) | ({"broken"} if unsure else set())


def wrong(nodes: list[Node], fates: Mapping[str, Fate], mended: bool) -> list[str]:
    """Who is not what it may be."""
    found = []
    for node in nodes:
        fate = fates[node.id]
        by_parent = fate.status == "failed" and fate.reason.startswith("its parent ")
        poisoned = fate.status == "failed" and "poison pill" in fate.reason
        status = "broken" if by_parent else fate.status
        may = allowed(node, fates, mended)
        if status not in may and not (poisoned and may & {"finished", "failed"}):
            parents = {parent: (policy, fates[parent]) for parent, policy in node.parents.items()}
            found.append(f"{node}: {status} ({fate}), may be {sorted(may)}; {parents}")
        if by_parent:
            name, _, how = fate.reason.removeprefix("its parent ").partition(" was ")
            if node.parents.get(name) not in ("fail", "wait") or (how not in (fates[name].status, "failed", "deleted")):
                found.append(f"{node}: {fate.reason}, which is {fates.get(name)}")
    return found
