"""Reseeds random generators that task modules made at import: forked with one state, all processes would draw the same numbers."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs every process 0.6 MB
    from collections.abc import Iterable
    from typing import Any

#: Bytes of a seed.
_SEED = 32
#: Methods of a class that produce its numbers.
_OWN = ("random", "seed", "getrandbits")


def _seed() -> int:
    return int.from_bytes(os.urandom(_SEED), "big")


class _Found:
    """The generators of one search, by how they are seeded."""

    def __init__(self, things: Iterable[Any]) -> None:
        self.usual: list[Any] = []
        #: Instances of the C class itself, without the additions of the Python class.
        self.bare: list[Any] = []
        #: Instances of classes that draw or seed in their own way.
        self.odd: list[Any] = []
        #: numpy's legacy generators, and the bit generators behind `Generator`.
        self.legacy: list[Any] = []
        self.bits: list[Any] = []
        self._sort(things)
        twister = getattr(sys.modules.get("numpy.random"), "MT19937", None)  # no other kind uses legacy seeding
        self.legacy = [state for state in self.legacy if type(state._bit_generator) is twister]
        owned = {id(state._bit_generator) for state in self.legacy}
        self.bits = [bits for bits in self.bits if id(bits) not in owned]

    def _sort(self, things: Iterable[Any]) -> None:
        kinds: dict[type, list[Any] | None] = {}
        for thing in things:
            kind = type(thing)  # what `isinstance` asks a proxy of somebody's may run anything
            if kind not in kinds:
                kinds[kind] = self._list_for(kind)
            found = kinds[kind]
            if found is not None:
                found.append(thing)

    def _list_for(self, kind: type) -> list[Any] | None:
        random, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
        if random is not None and issubclass(kind, _base(random)):
            if issubclass(kind, random.SystemRandom):
                return None
            if kind is _base(random):
                return self.bare
            usual = issubclass(kind, random.Random)
            return self.usual if usual and all(getattr(kind, n) is getattr(random.Random, n) for n in _OWN) else self.odd
        if numpy is not None and hasattr(numpy, "BitGenerator"):
            if issubclass(kind, numpy.RandomState):
                return self.legacy
            if issubclass(kind, numpy.BitGenerator):
                return self.bits
        return None

    def renew(self) -> None:
        """Give each generator a seed of its own."""
        if self.usual or self.bare:
            seed = _base(sys.modules["random"]).seed
            for generator in self.bare:
                seed(generator, _seed())
            for generator in self.usual:
                seed(generator, _seed())
                generator.gauss_next = None
        for generator in self.odd:
            generator.seed(_seed())
        for state in self.legacy:
            state.seed([*os.urandom(_SEED)])
        for bits in self.bits:
            bits.state = type(bits)().state

    def drop_fixed(self) -> list[Any]:
        """Remove the generators that can't get another state, and return them."""
        fixed = []
        for found, can in ((self.odd, _can_be_seeded), (self.legacy, _can_be_legacy_seeded), (self.bits, _can_be_set)):
            good = [thing for thing in found if can(thing)]
            fixed += [thing for thing in found if not any(thing is other for other in good)]
            found[:] = good
        return fixed


def _base(random: Any) -> Any:
    return random.Random.__base__


def _can_be_seeded(generator: Any) -> bool:
    drawn = []
    for seed in (1, 2):
        try:
            generator.seed(seed)
            drawn.append((generator.random(), generator.getrandbits(64)))
        except Exception:
            return False
    return all(first != second for first, second in zip(*drawn, strict=True))


def _can_be_legacy_seeded(state: Any) -> bool:
    try:
        state.seed(1)
    except Exception:
        return False
    return True


def _can_be_set(bits: Any) -> bool:
    try:
        bits.state = type(bits)().state
    except Exception:
        return False
    return True


class Chance:
    """Finds the generators of this process and gives them new seeds.

    It searches after the imports, before the first fork, and again in a warm process once that has imported more.
    """

    def __init__(self) -> None:
        self._found, self._later = _Found(()), _Found(())
        #: True if there are any. Most programs have none, and a check of each kind copies 14 pages in every process.
        self.found = False
        #: True if there are any that were found later.
        self._more = False
        self._modules = len(sys.modules)

    def look(self) -> list[str]:
        """Find all generators. Return the names of those that will be the same in every process."""
        self._modules = len(sys.modules)
        own = getattr(sys.modules.get("random"), "_inst", None)  # seeded anew by a hook at fork
        self._found = _Found(thing for thing in [*gc.get_objects(), *_untracked()] if thing is not own)
        fixed = self._found.drop_fixed()
        self.found = any(vars(self._found).values())
        return sorted({*map(_name_of, fixed), *_seed_sequences()})

    def after_fork(self) -> None:
        """Give each generator of the fork server its own state."""
        self._found.renew()

    def after_imports(self) -> None:
        """Give the generators of modules that each process imports itself their own state, too."""
        self._look_again()
        self._later.renew()

    def between_jobs(self) -> None:
        """Seed all generators again: the next job's numbers don't depend on what the last job drew, seeded or imported."""
        if len(sys.modules) != self._modules:
            self._look_again()
        random = sys.modules.get("random")
        if random is not None:
            _base(random).seed(random._inst, _seed())
            random._inst.gauss_next = None
        if self.found:
            self._found.renew()
        if self._more:
            self._later.renew()

    def _look_again(self) -> None:
        self._modules = len(sys.modules)
        self._later = _Found([*gc.get_objects(), *_untracked()])  # those of the fork server are frozen and not among the first
        self._later.drop_fixed()
        self._more = any(vars(self._later).values())


def _untracked() -> list[Any]:
    """Return module attributes that the garbage collector does not track: instances of the bare C class."""
    random = sys.modules.get("random")
    if random is None:
        return []
    kind = _base(random)
    return [thing for _, thing in _attributes() if type(thing) is kind]


def _seed_sequences() -> list[str]:
    """Return the names of seed sequences: their `spawn` gives every process the same children."""
    kind = getattr(sys.modules.get("numpy.random"), "SeedSequence", None)
    return [] if kind is None else [f"{name} (SeedSequence)" for name, thing in _attributes() if type(thing) is kind]


def _attributes() -> Iterable[tuple[str, Any]]:
    for module_name, module in list(sys.modules.items()):
        space = getattr(module, "__dict__", None)
        if type(space) is dict:
            for name, thing in list(space.items()):
                yield f"{module_name}.{name}", thing


def _name_of(wanted: Any) -> str:
    kind = type(wanted).__qualname__
    for name, thing in _attributes():
        if thing is wanted:
            return f"{name} ({kind})"
    return f"an instance of {type(wanted).__module__}.{kind}"
