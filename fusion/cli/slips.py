"""Hints for queries that match nothing: a word alone is searched in texts, but may have been meant as a field's value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fusion.cli.output import echo

if TYPE_CHECKING:
    from fusion.cli.context import Cli
    from fusion.store.query.grammar import Query


def tell_slips(cli: Cli, query: Query) -> None:
    """Print on stderr what a word of the query may have been meant to be."""
    from fusion.kernel.states import STATES
    from fusion.store.query.fields import FIELDS
    from fusion.store.query.lexer import WORD

    words = [term.values[0] for term in query.terms if term.field == WORD and not term.negative]
    if not words:
        return
    queues, meant = set(cli.inspector.queue_names()), list[str]()
    for word in words:
        field, equals, value = word.partition("=")
        if word in STATES:
            meant.append(f"state:{word}")
        elif word in queues:
            meant.append(f"queue:{word}")
        elif equals and field in FIELDS:
            meant.append(f"{field}:{value}")
    if meant:
        told = ", ".join(repr(word) for word in words)
        echo(
            f"{told}: a word alone is looked for in id, function, description and error; did you mean {' '.join(meant)}?",
            err=True,
        )
    elif len(words) > 1:
        echo(f"All words must hold; for jobs of several ids: id:{','.join(words)}", err=True)
