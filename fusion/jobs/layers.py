"""Where the jobs of a graph stand when it is drawn: in layers, each behind all that it waits for. Large graphs are grouped by function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Most jobs that are drawn one by one.
MOST = 300
#: How often the order in the layers is improved.
_SWEEPS = 4


class Knot(NamedTuple):
    """A job of a graph. `parents`: the jobs that it waits for, or waited for, each with what happens if that one does not finish."""

    id: str
    function: str
    status: str
    parents: Mapping[str, str]


@dataclass(slots=True)
class Spot:
    """A job where it stands, or all jobs of a function in a layer. `ids`: theirs, if they are known; `states`: how many are in each state;
    `after`: the numbers of the spots that it waits for, each with what happens if one of those does not finish (`fail`, `ignore`, `wait`)."""

    ids: list[str]
    function: str
    layer: int
    row: int
    states: Counter[str] = field(default_factory=Counter)
    after: dict[int, str] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many jobs stand here."""
        return self.states.total()


def spots(knots: Sequence[Knot], most: int = MOST) -> list[Spot]:
    """Return where these jobs stand, layer by layer. More than `most` are grouped by layer and function. The same graph gives the same answer."""
    parents = {one.id: [parent for parent in one.parents if parent != one.id] for one in knots}
    layers = layered(parents)
    if len(knots) <= most:
        homes = {one.id: (layers[one.id], one.id) for one in knots}
    else:
        homes = {one.id: (layers[one.id], one.function) for one in knots}
    edges: dict[tuple[int, str], set[tuple[int, str]]] = {home: set() for home in homes.values()}
    for one in knots:
        edges[homes[one.id]] |= {homes[parent] for parent in one.parents if parent in homes} - {homes[one.id]}
    places = _places(edges)
    found = {home: Spot([], "", home[0], row) for home, row in places.items()}
    numbers = {home: number for number, home in enumerate(found)}
    for one in knots:
        spot = found[homes[one.id]]
        spot.ids.append(one.id)
        spot.function = one.function
        spot.states[one.status] += 1
        for parent, policy in one.parents.items():
            if parent in homes and homes[parent] != homes[one.id]:
                spot.after[numbers[homes[parent]]] = policy
    return list(found.values())


def layered(parents: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Return the layer of each: one behind the last of its parents; 0 without any. Those in a circle stand behind all others."""
    left = {one: [parent for parent in of if parent in parents] for one, of in parents.items()}
    children: dict[str, list[str]] = {one: [] for one in left}
    for one, of in left.items():
        for parent in of:
            children[parent].append(one)
    missing = {one: len(of) for one, of in left.items()}
    ready = [one for one, count in missing.items() if not count]
    layers = dict.fromkeys(ready, 0)
    for one in ready:  # grows while it is read
        for child in children[one]:
            layers[child] = max(layers.get(child, 0), layers[one] + 1)
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    last = max((layers[one] for one in ready), default=-1) + 1
    return {one: layers[one] if not missing[one] else last for one in left}


def _places(edges: Mapping[tuple[int, str], Iterable[tuple[int, str]]]) -> dict[tuple[int, str], int]:
    """Return the row of each in its layer, layer by layer. Each is moved near the middle of those that it is tied to, so that few lines cross."""
    layers: dict[int, list[tuple[int, str]]] = {}
    for home in sorted(edges):
        layers.setdefault(home[0], []).append(home)
    ties: dict[tuple[int, str], list[tuple[int, str]]] = {home: [] for home in edges}
    for home, of in edges.items():
        for other in of:
            ties[home].append(other)
            ties[other].append(home)
    rows = {home: row for layer in layers.values() for row, home in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for number in sorted(layers, reverse=bool(sweep % 2)):
            middles = {
                home: sum(rows[one] for one in ties[home]) / len(ties[home]) if ties[home] else rows[home]
                for home in layers[number]
            }
            layers[number].sort(key=lambda home: (middles[home], home))
            rows.update({home: row for row, home in enumerate(layers[number])})
    return {home: rows[home] for number in sorted(layers) for home in layers[number]}
