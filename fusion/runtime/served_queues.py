"""The queues that a worker serves: names and wildcards. Queues with jobs of equal class take turns."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from fusion.exceptions import ConfigurationError
from fusion.store.client.classify import OTHERS_DATA
from fusion.store.layout.names import check_queue_name, is_pattern

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
    queues with jobs of equal class take turns.
    """

    def __init__(self, names: Iterable[str], order: str = "round-robin") -> None:
        unique = list(dict.fromkeys(names))
        self.patterns = [name for name in unique if is_pattern(name)]
        #: Names and wildcards at whose doorbells to wait, the next one to serve first.
        self.bells = [name if is_pattern(name) else check_queue_name(name) for name in unique]
        self._compiled = {pattern: " ".join(["", *compiled(pattern)]) for pattern in self.patterns}
        self._order = order
        if order == "random":
            self.bells = random.sample(self.bells, len(self.bells))
        #: Wildcard -> the queue that it served last. Where queues take turns, only for the first wildcard in line.
        self._lasts: dict[str, str] = {}
        self._surveyed = False

    def __str__(self) -> str:
        order = {"listed": "in the order listed", "random": "in random order"}.get(self._order, "in turns")
        return f"{', '.join([*self.queues, *self.patterns])}; the highest class first, inside a class {order}"

    @property
    def queues(self) -> Sequence[str]:
        """The names without wildcards, the next one to serve first."""
        return [name for name in self.bells if name not in self._compiled] if self.patterns else self.bells

    @property
    def turn(self) -> Sequence[str]:
        """Return names, and wildcards with the queue served last, as a turn sends them."""
        lasts = self._lasts
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

    def served(self, queue: str) -> None:
        """Note that a queue was served: the others of its class now go first. If they are `listed`, only the others of its wildcard do."""
        named = queue in self.bells
        wildcard = "" if named else next((name for name in self.bells if name in self._compiled and fnmatchcase(queue, name)), "")
        if self._order != "round-robin":
            if wildcard:
                self._lasts[wildcard] = queue
            if self._order == "random":
                self.bells = random.sample(self.bells, len(self.bells))
            return
        self._lasts = {wildcard: queue} if wildcard else {}
        at = self.bells.index(queue) + 1 if named else self.bells.index(wildcard) if wildcard else 0
        if at:
            self.bells = self.bells[at:] + self.bells[:at]


def compiled(wildcard: str) -> list[str]:
    """Return a wildcard as Lua patterns that must occur in a name one after the other. They match like `fnmatchcase`, in linear time."""
    pieces = ["".join(map(_item, _ITEM.findall(part))) for part in _split(wildcard)]
    if len(pieces) == 1:
        return [f"^{pieces[0]}$"]
    first, *between, last = pieces
    return [*([f"^{first}"] if first else []), *filter(None, between), *([f"{last}$"] if last else [])]


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
