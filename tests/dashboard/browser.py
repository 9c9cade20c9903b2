"""A browser without a window: cookies, forms, redirects; no scripts. It asks a dashboard in this process, as a WSGI server would."""

from __future__ import annotations

import gzip
import html
import io
import re
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote, unquote, urlencode
from wsgiref.util import setup_testing_defaults

import redis


@dataclass
class Shown:
    """An answer: `text` without tags, for what people see."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def html(self) -> str:
        raw = gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body
        return raw.decode()

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", self.html))).strip()

    def forms(self) -> list[tuple[str, dict[str, str], str]]:
        """Action, hidden fields, and the words on the button of each form."""
        found = []
        for attributes, inner in re.findall(r"<form([^>]*)>(.*?)</form>", self.html, re.DOTALL):
            action = re.search(r'action="([^"]*)"', attributes)
            fields = {
                html.unescape(n): html.unescape(v) for n, v in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', inner)
            }
            label = " ".join(re.findall(r"<button[^>]*>(.*?)</button>", inner, re.DOTALL))
            found.append((html.unescape(action[1]) if action else "", fields, re.sub(r"<[^>]*>", "", label).strip()))
        return found


@dataclass
class Browser:
    """`prefix`: where the dashboard is mounted."""

    app: Any
    prefix: str = ""
    host: str = "localhost"
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, address: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Shown:
        """One request, cookies kept."""
        path, _, query = address.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": self.prefix,
            "PATH_INFO": unquote(path.removeprefix(self.prefix)).encode().decode("latin-1"),
            "QUERY_STRING": query,
            "HTTP_HOST": self.host,
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_COOKIE": "; ".join(f"{name}={value}" for name, value in self.cookies.items()),
            **{"HTTP_" + name.upper().replace("-", "_"): value for name, value in (headers or {}).items()},
        }
        if body:
            environ["CONTENT_TYPE"] = "application/x-www-form-urlencoded"
        setup_testing_defaults(environ)
        seen: list[Any] = []

        def start(status: str, given: list[tuple[str, str]], exc_info: Any = None) -> Any:
            seen.extend((int(status.split()[0]), {name.lower(): value for name, value in given}))

        answered = b"".join(self.app(environ, start))
        shown = Shown(seen[0], seen[1], answered)
        for morsel in SimpleCookie(shown.headers.get("set-cookie", "")).values():
            if morsel["max-age"] == "0":
                self.cookies.pop(morsel.key, None)
            else:
                self.cookies[morsel.key] = morsel.value
        return shown

    def get(self, address: str, **headers: str) -> Shown:
        """A page."""
        return self.ask("GET", address, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, address: str, headers: dict[str, str] | None = None, **fields: Any) -> Shown:
        """A form of this site is sent; the page that comes next."""
        sent = self.send(address, headers, **fields)
        return self.get(sent.headers["location"]) if sent.status == 303 else sent

    def send(self, address: str, headers: dict[str, str] | None = None, **fields: Any) -> Shown:
        """A form of this site is sent; its own answer."""
        body = urlencode(fields, doseq=True).encode() or b"back="
        return self.ask("POST", address, body, {"sec-fetch-site": "same-origin", **(headers or {})})

    def press(self, page: Shown, label: str, nth: int = 0, **fields: Any) -> Shown:
        """The button of this page with these words."""
        action, hidden, _ = [form for form in page.forms() if form[2] == label][nth]
        return self.post(action, **{**hidden, **fields})

    def log_in(self, token: str) -> Browser:
        """Give a token."""
        told = self.send(f"{self.prefix}/login", token=token)
        assert told.status == 303, told.text
        return self


def path_of(name: str) -> str:
    """A name as a part of an address."""
    return quote(name, safe="")


def audited(conn: redis.Redis, action: str) -> list[str]:
    """Who did this, the first first."""
    found: Any = conn.xrange("rq:audit")
    return [row[b"who"].decode() for _, row in found if row.get(b"action") == action.encode()]
