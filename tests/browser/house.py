"""A dashboard that people visit: a real server, its tokens, and the pages of the table of routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion.dashboard.page import Page as Entry
from fusion.dashboard.pages import ALL
from fusion.web.auth import new_token
from tests.browser.person import Person
from tests.browser.staged import NAMES

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

#: Of the tokens file, by who has it: scopes, and the queues to which it is restricted.
TOKENS: dict[str, tuple[list[str], list[str]]] = {
    "reader": (["read"], []),
    "operator": (["operate"], []),
    "admin": (["admin"], []),
    "sms": (["admin"], ["sms", "sms-*"]),
}


def write_tokens(path: Path) -> dict[str, str]:
    """The tokens file; what it does not hold, the tokens themselves."""
    made = {name: new_token(name, *rest) for name, rest in TOKENS.items()}
    path.write_text("".join(f"{line}\n" for _, line in made.values()))
    return {name: token for name, (token, _) in made.items()}


def addresses(names: Mapping[str, str] = NAMES) -> list[str]:
    """Of every page, with a name in place of each brace."""
    return [filled(entry.path, names) for entry in ALL if isinstance(entry, Entry)]


def filled(path: str, names: Mapping[str, str] = NAMES) -> str:
    """A path of the table of routes, with a name in place of its brace."""
    if "{" not in path:
        return path
    name = names.get(path.split("/")[1])
    assert name is not None, f"tests/browser/staged.py: NAMES needs a row for the page {path}, and the staged Redis such a thing"
    return "/".join(name if part.startswith("{") else part for part in path.split("/"))


@dataclass
class House:
    """`person` looks at the dashboard of `person.url`. `tokens`: by who has one, see TOKENS."""

    person: Person
    tokens: dict[str, str]

    def enter(self, who: str = "admin", **options: Any) -> BrowserContext:
        """Somebody who has logged in, in a context of their own."""
        context = self.person.context(**options)
        self.log_in(context, who)
        return context

    def log_in(self, context: BrowserContext, who: str) -> None:
        answer = context.request.post(
            "/login", form={"token": self.tokens[who]}, headers={"Origin": self.person.url}, max_redirects=0
        )
        assert answer.status == 303, answer.text()

    def forget(self) -> None:
        """Have the server ask Redis anew: it shows an answer again for some seconds, until something is changed through it, or should be."""
        context = self.enter()
        answer = context.request.post(
            "/queues/%20/pause", form={"back": "/"}, headers={"Origin": self.person.url}, max_redirects=0
        )
        assert answer.status == 303, answer.text()

    def visit(
        self, path: str, who: str = "admin", *, before: Callable[[BrowserContext], None] = lambda context: None, **options: Any
    ) -> Page:
        """That page, as somebody who has logged in; options as for `Person.open`. AssertionError if it is not answered with 200."""

        def enter(context: BrowserContext) -> None:
            self.log_in(context, who)
            before(context)

        return self.person.open(path, before=enter, **options)
