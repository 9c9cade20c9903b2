"""The queues that a worker serves: names and wildcards. Queues with jobs of equal class take turns."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import lcm

from fusion.exceptions import ConfigurationError
from fusion.store.client.classify import OTHERS_DATA
from fusion.store.layout import codec
from fusion.store.layout.names import check_queue_name, is_pattern
from fusion.store.layout.score import MAX_PRIORITY

#: Jobs of higher classes after which a class has not been served lately.
_LATELY = 100
#: Calls of the survey in one `refresh`, 100 names each.
_ROUNDS = 100
#: The characters of queue names.
_ALPHABET = string.ascii_letters + string.digits + "_.-"
#: One item of a wildcard: a set of characters, or one character.
_ITEM = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


class ServedQueues:
    """Names and wildcards in the order of service.

    Redis resolves wildcards, with an index of the queues that have work. However many queues exist, a turn reads only a few names and this
    process reads none.

    `order`: `listed` serves each name before the next one, with `random` chance says after each job which one is next, and with `round-robin`
    queues with jobs of equal class take turns. With `weighted` those of equal class get shares by their `weights`, 1 for a name without one.
    """

    def __init__(self, names: Iterable[str], order: str = "round-robin", weights: Iterable[str] | None = None) -> None:
        unique = list(dict.fromkeys(names))
        self.patterns = [name for name in unique if is_pattern(name)]
        #: Names and wildcards at whose doorbells to wait, the next one to serve first.
        self.bells = [name if is_pattern(name) else check_queue_name(name) for name in unique]
        self._compiled = {pattern: " ".join(["", *compiled(pattern)]) for pattern in self.patterns}
        self._order = order
        if order == "random":
            self.bells = random.sample(self.bells, len(self.bells))
        self._shares = Shares(self.bells, _read(weights or ())) if order == "weighted" else None
        #: Wildcard -> the queue that it served last. Where queues take turns, only for the first wildcard in line.
        self._lasts: dict[str, str] = {}
        self._surveyed = False

    def __str__(self) -> str:
        order = {"listed": "in the order listed", "random": "in random order", "weighted": "by weight"}.get(
            self._order, "in turns"
        )
        return f"{', '.join([*self.queues, *self.patterns])}; the highest class first, inside a class {order}"

    @property
    def queues(self) -> Sequence[str]:
        """The names without wildcards, the next one to serve first."""
        return [name for name in self.bells if name not in self._compiled] if self.patterns else self.bells

    @property
    def turn(self) -> Sequence[str]:
        """Return names, and wildcards with the queue served last, as a turn sends them."""
        lasts = self._lasts
        if self._shares is not None:
            self.bells = self._shares.order()
        return [f"{name} {lasts[name]}" if name in lasts else name for name in self.bells] if lasts else self.bells

    def serves(self, queue: str) -> bool:
        """Return True if a queue is named, or matches a wildcard."""
        return queue in self.bells or any(fnmatchcase(queue, pattern) for pattern in self.patterns)

    def check(self, wrong_types: Callable[[Sequence[str]], tuple[Sequence[str], Sequence[str]]]) -> Sequence[str]:
        """Return the queues whose key stock RQ's producers write to. ConfigurationError if a queue's key holds something else."""
        wrong, lists = wrong_types(self.queues)
        if wrong:
            raise ConfigurationError(f"{wrong[0]}: {OTHERS_DATA}", code="FUS-207")
        return lists

    def refresh(self, survey: Callable[[Mapping[str, str], float], bool], interval: float) -> bool:
        """Send the wildcards to Redis. It checks its index if nobody did for `interval` seconds. True if there is more to check."""
        for _ in range(_ROUNDS):
            if not survey(self._compiled, interval if self._surveyed else 0):
                self._surveyed = True
                return False
        return True

    def served(self, queue: str, priority: bytes = b"") -> None:
        """Note that a job of this class was given by a queue: the others of its class now go first. If they are `listed`, only the others of its
        wildcard do."""
        named = queue in self.bells
        wildcard = "" if named else next((name for name in self.bells if name in self._compiled and fnmatchcase(queue, name)), "")
        if self._order != "round-robin":
            if wildcard:
                self._lasts[wildcard] = queue
            if self._order == "random":
                self.bells = random.sample(self.bells, len(self.bells))
            elif self._shares is not None and (named or wildcard):
                # Another program may have written any number into the record.
                self._shares.count(queue if named else wildcard, max(0, min(codec.number(priority), MAX_PRIORITY)))
            return
        self._lasts = {wildcard: queue} if wildcard else {}
        at = self.bells.index(queue) + 1 if named else self.bells.index(wildcard) if wildcard else 0
        if at:
            self.bells = self.bells[at:] + self.bells[:at]


class Shares:
    """Whose turn it is where queues have weights: stride scheduling (Waldspurger and Weihl, 1995), for each class apart.

    With each job a queue's place advances by a step, the shorter the higher its weight, and the one that is least far comes first. So of the queues
    that have jobs all the time each gets its share, to within the jobs of one turn. One that has none goes along with the others: it saves up
    nothing.
    """

    def __init__(self, names: Sequence[str], weights: Mapping[str, int]) -> None:
        found = [weights.get(name, 1) for name in names]
        self._steps = {name: lcm(*found) // weight for name, weight in zip(names, found, strict=True)}
        #: By class, how far each name is.
        self._places: dict[int, dict[str, int]] = {0: dict.fromkeys(names, 0)}
        #: The class by which names are ordered, and how many jobs of higher ones were given since its last. The first job decides it.
        self._class, self._others = 0, _LATELY
        #: The names as the last turn has them, and whether it has given none so far.
        self._order, self._is_first = list(names), True

    def order(self) -> list[str]:
        """Return the names for the next turn, by their places in the lowest class that was served lately. Only there do jobs wait: while there
        are some of a higher class, none of this one is given."""
        self._is_first = True
        self._order = sorted(self._steps, key=self._places[self._class].__getitem__)
        return self._order

    def count(self, name: str, priority: int) -> None:
        """Count a job that this name gave."""
        places = self._places.setdefault(priority, dict.fromkeys(self._steps, 0))
        self._others = self._others + 1 if priority > self._class else 0
        if not self._others or self._others > _LATELY:
            self._class, self._others = priority, 0
        if self._is_first:  # those before it in the turn have no job of this class
            self._is_first = False
            for other in self._order[: self._order.index(name)]:
                places[other] = max(places[other], places[name])
        places[name] += self._steps[name]


def compiled(wildcard: str) -> list[str]:
    """Return a wildcard as Lua patterns that must occur in a name one after the other. They match like `fnmatchcase`, in linear time."""
    pieces = ["".join(map(_item, _ITEM.findall(part))) for part in _split(wildcard)]
    if len(pieces) == 1:
        return [f"^{pieces[0]}$"]
    first, *between, last = pieces
    return [*([f"^{first}"] if first else []), *filter(None, between), *([f"{last}$"] if last else [])]


def _read(weights: Iterable[str]) -> dict[str, int]:
    """Return weights that are given as `sms=3`."""
    return {name: int(weight) for name, _, weight in (item.rpartition("=") for item in weights)}


def _split(wildcard: str) -> list[str]:
    """Split a wildcard at its stars, except stars in brackets."""
    parts = [""]
    for item in _ITEM.findall(wildcard):
        if item == "*":
            parts.append("")
        else:
            parts[-1] += item
    return parts


def _item(item: str) -> str:
    if item == "?":
        return "."
    if len(item) > 1:
        return "[" + "".join(f"%{one}" if not one.isalnum() else one for one in _ALPHABET if fnmatchcase(one, item)) + "%z]"
    return item if item.isalnum() else f"%{item}"
