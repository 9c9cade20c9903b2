"""A real server process for a test, and a client that sends exactly what it is given."""

from __future__ import annotations

import json
import re
import signal
import socket
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, ClassVar

from fusion.web.auth import new_token
from tests.kit.process import ProcessUnderTest

SCOPES = ("read", "operate", "admin")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of the error."""
        return str(self.json["error"]["code"])


@dataclass(frozen=True)
class Tokens:
    path: Path
    by_scope: dict[str, str]

    @classmethod
    def write(cls, path: Path) -> Tokens:
        made = {scope: new_token(f"{scope}er", [scope]) for scope in SCOPES}
        path.write_text("# of the tests\n\n" + "".join(f"{line}\n" for _, line in made.values()))
        return cls(path, {scope: token for scope, (token, _) in made.items()})


class ServerProcess(ProcessUnderTest):
    """`run_worker.py server` on a free port, with a log file."""

    SETTINGS: ClassVar[dict[str, str]] = {"FUSION_TASKS": "tests.jobs.basic,tasks"}
    FAREWELL = signal.SIGTERM

    def __init__(self, redis_url: str, log: Path, *args: str, command: str = "server", env: dict[str, str] | None = None) -> None:
        port = "--listen" if command == "metrics" else "--port"
        super().__init__(redis_url, log, "run_worker.py", command, port, "0", *args, env=env)
        try:
            self.says("serving http")
        except AssertionError:
            self.stop()
            raise
        found = re.search(r"serving http://(\S+):(\d+)", self.output)
        assert found is not None, self.output
        self.host, self.port = found[1].strip("[]"), int(found[2])

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self, source: str = "127.0.0.1") -> HTTPConnection:
        return HTTPConnection(self.host, self.port, timeout=20, source_address=(source, 0))

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "",
        source: str = "127.0.0.1",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """One request on a connection of its own; a body that is no bytes goes as JSON."""
        given = {"Authorization": f"Bearer {token}"} if token else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            given["Content-Type"] = "application/json"
        connection = self.connect(source)
        try:
            connection.request(method, path, body, {**given, **(headers or {})})
            return read(connection.getresponse())
        finally:
            connection.close()

    def raw(self, text: bytes) -> bytes:
        """All that comes back for these bytes until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=20) as sock:
            sock.sendall(text)
            parts = []
            while part := sock.recv(65536):
                parts.append(part)
        return b"".join(parts)


def read(response: HTTPResponse) -> Answer:
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
