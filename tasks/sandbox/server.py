"""The sandbox as one object: two listening sockets and one thread with an event loop."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Any

from .http import HttpProtocol
from .ledger import Ledger
from .smtp import SmtpSession

_HOST = "127.0.0.1"
#: Every job is a process with a connection of its own: many arrive at once.
_BACKLOG = 4096


class Sandbox:
    """`with Sandbox() as sandbox: os.environ.update(sandbox.env())`. Port 0 = a free one; addresses are known after `start`.

    `smtp_tls` offers STARTTLS; `smtp_login` (user, password) makes the mail server ask for it. OSError if a port is taken.
    """

    def __init__(
        self,
        port: int = 0,
        smtp_port: int = 0,
        *,
        smtp_tls: ssl.SSLContext | None = None,
        smtp_login: tuple[str, str] | None = None,
    ) -> None:
        self.port = port
        self.smtp_port = smtp_port
        self._tls = smtp_tls
        self._login = smtp_login
        self._ledger = Ledger()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Base address of the HTTP side."""
        return f"http://{_HOST}:{self.port}"

    @property
    def smtp(self) -> str:
        """`host:port` of the SMTP side."""
        return f"{_HOST}:{self.smtp_port}"

    def env(self) -> dict[str, str]:
        """The variables that point the default providers here."""
        return {"FUSION_SANDBOX_URL": self.url, "FUSION_SANDBOX_SMTP": self.smtp}

    def start(self) -> Sandbox:
        """Listen; returns when connections are accepted."""
        loop = asyncio.new_event_loop()
        try:
            servers = loop.run_until_complete(self._listen(loop))
        except BaseException:
            loop.close()
            raise
        self._loop = loop
        self._thread = threading.Thread(target=self._run, args=(loop, servers), name="sandbox", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close everything; connections that are open are cut."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def __enter__(self) -> Sandbox:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stats(self) -> dict[str, Any]:
        """The totals of GET /_stats."""
        found: dict[str, Any] = self._ask(self._ledger.stats)
        return found

    def deliveries(self, since: int = 0) -> list[dict[str, Any]]:
        """The deliveries of GET /_deliveries, without the paging key."""
        found: list[dict[str, Any]] = self._ask(self._ledger.deliveries, since)["deliveries"]
        return found

    def fault(self, channel: str, **wish: Any) -> None:
        """Play a fault, given as to POST /_faults. ValueError if the sandbox does not understand it."""
        wrong = self._ask(self._ledger.add_fault, {"channel": channel, **wish})
        if wrong:
            raise ValueError(wrong)

    def clear(self) -> None:
        """Forget deliveries and faults."""
        self._ask(self._ledger.clear)
        self._ask(self._ledger.faults.clear)

    def _ask(self, question: Any, *args: Any) -> Any:
        """Run in the server's thread, which alone touches the ledger."""
        if self._loop is None:
            raise RuntimeError("the sandbox is not running: call start() first")

        async def run() -> Any:
            return question(*args)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> list[asyncio.Server]:
        http = await loop.create_server(lambda: HttpProtocol(self._ledger, loop), _HOST, self.port, backlog=_BACKLOG)
        try:
            smtp = await asyncio.start_server(self._mail, _HOST, self.smtp_port, backlog=_BACKLOG)
        except BaseException:
            http.close()
            raise
        self.port, self.smtp_port = (server.sockets[0].getsockname()[1] for server in (http, smtp))
        return [http, smtp]

    async def _mail(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await SmtpSession(self._ledger, reader, writer, self._tls, self._login).run()

    def _run(self, loop: asyncio.AbstractEventLoop, servers: list[asyncio.Server]) -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        for server in servers:
            server.close()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
