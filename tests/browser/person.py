"""A person at a browser, and what must not happen while they look: errors, breaches of the content policy, requests to other hosts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, WebError

#: Milliseconds for what a page must do.
PATIENCE = 15_000
#: Told by the page itself: the browser's own message of a breach comes to the console, too, but not for each.
_BREACHES = """addEventListener("securitypolicyviolation", event => console.error(
    `content policy: ${event.effectiveDirective} refuses ${event.blockedURI || "inline"} of ${event.sourceFile}:${event.lineNumber}`
))"""


@dataclass
class Person:
    """One session of a browser. `check` at the end fails for all that went wrong and that no `met` took away."""

    browser: Browser
    url: str
    troubles: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)

    def context(self, **options: Any) -> BrowserContext:
        """Cookies, storage and preferences of their own; options are Playwright's `new_context`."""
        made = self.browser.new_context(base_url=self.url, **options)
        self._contexts.append(made)
        made.set_default_timeout(PATIENCE)
        made.add_init_script(_BREACHES)
        made.on("console", self._heard)
        made.on("weberror", self._failed)
        made.on("request", self._asked)
        return made

    def open(
        self,
        path: str,
        *,
        scheme: Literal["light", "dark"] = "light",
        width: int = 1280,
        javascript: bool = True,
        status: int = 200,
        before: Callable[[BrowserContext], None] = lambda context: None,
        **options: Any,
    ) -> Page:
        """A page in a context of its own, once it has loaded. `before`: what is done there first. AssertionError for another status."""
        context = self.context(
            color_scheme=scheme, viewport={"width": width, "height": 900}, java_script_enabled=javascript, **options
        )
        before(context)
        page = context.new_page()
        answer = page.goto(path, wait_until="load")
        assert answer is not None and answer.status == status, (
            f"{path}: {answer and answer.status} {page.inner_text('body')[:300]}"
        )
        return page

    def met(self, pattern: str) -> list[str]:
        """Take away the troubles that were to come; AssertionError if there are none."""
        self._settle()
        found = [one for one in self.troubles if re.search(pattern, one)]
        assert found, f"nothing like {pattern!r} in {self.troubles}"
        self.troubles = [one for one in self.troubles if one not in found]
        return found

    def check(self) -> None:
        """AssertionError for any trouble."""
        self._settle()
        assert not self.troubles, "\n".join(self.troubles)

    def close(self) -> None:
        from playwright.sync_api import Error

        for context in self._contexts:
            for page in context.pages:
                try:  # Chromium may answer a close that meets the end of a navigation, and keep the page: the context never closes (playwright#42366)
                    page.goto("about:blank")
                except Error:  # closed, or on its way elsewhere
                    pass
            context.close()

    def _settle(self) -> None:
        """What pages have told is here after an answer of each."""
        from playwright.sync_api import Error

        for context in self._contexts:
            for page in context.pages:
                try:
                    page.evaluate("1")
                except Error:  # closed, or on its way elsewhere
                    pass

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            place = message.location
            self.troubles.append(f"console {message.type}: {message.text} ({place.get('url')}:{place.get('lineNumber')})")

    def _failed(self, error: WebError) -> None:
        self.troubles.append(f"uncaught: {error.error}")

    def _asked(self, request: Request) -> None:
        to = urlsplit(request.url)
        if to.scheme not in ("data", "blob") and to.netloc != urlsplit(self.url).netloc:
            self.troubles.append(f"foreign request: {request.url}")
