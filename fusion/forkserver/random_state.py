"""Random generators that task modules made when they were imported: forked from one state, all processes would draw the same numbers."""

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
#: What a class has of its own that makes its numbers.
_OWN = ("random", "seed", "getrandbits")


def _seed() -> int:
    return int.from_bytes(os.urandom(_SEED), "big")


class _Found:
    """Generators of one look, by how they are seeded."""

    def __init__(self, things: Iterable[Any]) -> None:
        self.usual: list[Any] = []
        #: Of the C class itself, which lacks what Python adds to it.
        self.bare: list[Any] = []
        #: Of a class that draws or seeds in a way of its own.
        self.odd: list[Any] = []
        #: numpy's: the generators of old, and what is behind a `Generator`.
        self.legacy: list[Any] = []
        self.bits: list[Any] = []
        self._sort(things)
        twister = getattr(sys.modules.get("numpy.random"), "MT19937", None)  # no other kind is seeded the old way
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
        """Seed each generator with numbers of its own."""
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
        """Forget those that can't be given another state, and return them."""
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

    They are looked for where modules are imported, before the first fork, and again in a warm process once it has imported more.
    """

    def __init__(self) -> None:
        self._found, self._later = _Found(()), _Found(())
        #: True if there are any. Most programs have none, and looking at each kind copies 14 pages in every process.
        self.found = False
        self._modules = len(sys.modules)

    def look(self) -> list[str]:
        """Find them all. Returns the names of those that every process will have alike."""
        self._modules = len(sys.modules)
        own = getattr(sys.modules.get("random"), "_inst", None)  # seeded anew by a hook at fork
        self._found = _Found(thing for thing in [*gc.get_objects(), *_untracked()] if thing is not own)
        fixed = self._found.drop_fixed()
        self.found = any(vars(self._found).values())
        return sorted({*map(_name_of, fixed), *_seed_sequences()})

    def after_fork(self) -> None:
        """Every generator of the fork server gets a state of its own."""
        self._found.renew()

    def after_imports(self) -> None:
        """So do those of the modules that each process imports itself."""
        self._look_again()
        self._later.renew()

    def between_jobs(self) -> None:
        """Seed anew, whatever the last job drew, seeded or imported: the next one's numbers follow from nothing."""
        if len(sys.modules) != self._modules:
            self._look_again()
        random = sys.modules.get("random")
        if random is not None:
            _base(random).seed(random._inst, _seed())
            random._inst.gauss_next = None
        self._found.renew()
        self._later.renew()

    def _look_again(self) -> None:
        self._modules = len(sys.modules)
        self._later = _Found([*gc.get_objects(), *_untracked()])  # those of the fork server are frozen and not among the first
        self._later.drop_fixed()


def _untracked() -> list[Any]:
    """Attributes of modules that the collector does not know: an instance of the bare C class."""
    random = sys.modules.get("random")
    if random is None:
        return []
    kind = _base(random)
    return [thing for _, thing in _attributes() if type(thing) is kind]


def _seed_sequences() -> list[str]:
    """`spawn` gives every process the same children."""
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
