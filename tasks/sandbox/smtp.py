"""The sandbox's mail server (RFC 5321): EHLO HELO MAIL RCPT DATA RSET NOOP VRFY HELP QUIT; STARTTLS and AUTH when configured."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import ssl
from email.parser import BytesHeaderParser
from email.policy import SMTP

from .ledger import Ledger

_MAX_SIZE = 10 * 1024 * 1024
_PATH = re.compile(r"<([^<>\s]*)>((?:\s+\S+)*)")
_MAILBOX = re.compile(r"[^@\s]+@[^@\s]+")


class _Gone(Exception):
    """The client left."""


class SmtpSession:
    """One connection. With `login` (user, password), mail is taken only after AUTH; if there is TLS, AUTH needs it first."""

    def __init__(
        self,
        ledger: Ledger,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tls: ssl.SSLContext | None = None,
        login: tuple[str, str] | None = None,
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._writer = writer
        self._tls = tls
        self._login = login
        self._secure = False
        self._authenticated = login is None
        self._greeted = False
        self._reset()

    def _reset(self) -> None:
        self._sender: str | None = None
        self._recipients: list[str] = []

    async def run(self) -> None:
        """Serve until QUIT or until the client leaves."""
        try:
            await self._say("220 sandbox.invalid ESMTP Fusion sandbox")
            while True:
                line = await self._line()
                verb, _, rest = line.partition(" ")
                if verb.upper() == "QUIT":
                    await self._say("221 2.0.0 Bye")
                    return
                await self._command(verb.upper(), rest.strip())
        except (_Gone, OSError, ssl.SSLError):
            pass
        finally:
            self._writer.close()

    async def _command(self, verb: str, rest: str) -> None:
        match verb:
            case "EHLO" | "HELO":
                await self._hello(verb, rest)
            case "MAIL":
                await self._mail(rest)
            case "RCPT":
                await self._rcpt(rest)
            case "DATA":
                await self._data(rest)
            case "RSET":
                self._reset()
                await self._say("250 2.0.0 Ok")
            case "NOOP":
                await self._say("250 2.0.0 Ok")
            case "VRFY":
                await self._say("252 2.5.0 Send some mail and see")
            case "HELP":
                await self._say("214 2.0.0 RFC 5321")
            case "STARTTLS" if self._tls is not None and not self._secure:
                await self._say("220 2.0.0 Go ahead")
                await self._writer.start_tls(self._tls)
                self._secure, self._greeted = True, False
                self._reset()
            case "AUTH" if self._login is not None:
                await self._auth(rest)
            case _:
                await self._say("502 5.5.1 Command not implemented")

    async def _hello(self, verb: str, name: str) -> None:
        if not name:
            await self._say("501 5.5.4 Say who you are")
            return
        self._greeted = True
        self._reset()
        if verb == "HELO":
            await self._say("250 sandbox.invalid")
            return
        features = ["sandbox.invalid", f"SIZE {_MAX_SIZE}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES"]
        if self._tls is not None and not self._secure:
            features.append("STARTTLS")
        elif self._login is not None:
            features.append("AUTH PLAIN LOGIN")
        await self._say(*(f"250-{feature}" for feature in features[:-1]), f"250 {features[-1]}")

    async def _mail(self, rest: str) -> None:
        path = _PATH.fullmatch(rest[5:].strip()) if rest[:5].upper() == "FROM:" else None
        size = re.search(r"SIZE=(\d+)", path[2], re.IGNORECASE) if path else None
        if not self._greeted:
            await self._say("503 5.5.1 EHLO first")
        elif not self._authenticated:
            await self._say("530 5.7.0 Authentication required")
        elif self._sender is not None:
            await self._say("503 5.5.1 Nested MAIL command")
        elif path is None or (path[1] and not _MAILBOX.fullmatch(path[1])):
            await self._say("501 5.1.7 Syntax: MAIL FROM:<address>")
        elif size and int(size[1]) > _MAX_SIZE:
            await self._say("552 5.3.4 Message too big")
        elif await self._broken():
            return
        else:
            self._sender = path[1]
            await self._say("250 2.1.0 Ok")

    async def _broken(self) -> bool:
        """True if a fault answered in our place."""
        fault = self._ledger.fault("email")
        if fault is None:
            return False
        await asyncio.sleep(fault.delay)
        if fault.drop:
            self._writer.transport.abort()
            raise _Gone
        if fault.status is None:
            return False
        # A fault for all channels speaks HTTP.
        code = fault.status if fault.status in (421, 450, 451, 452, 454) or 550 <= fault.status <= 554 else 451
        self._ledger.refuse("email", code)
        await self._say(f"{code} {'4.3.0' if code < 500 else '5.3.0'} The service is not available right now")
        if code == 421:
            raise _Gone
        return True

    async def _rcpt(self, rest: str) -> None:
        path = _PATH.fullmatch(rest[3:].strip()) if rest[:3].upper() == "TO:" else None
        if self._sender is None:
            await self._say("503 5.5.1 MAIL first")
        elif path is None or not _MAILBOX.fullmatch(path[1]):
            await self._say("501 5.1.3 Syntax: RCPT TO:<address>")
        elif path[1].partition("@")[0].partition(".")[0].lower() == "unknown":
            self._ledger.refuse("email", 550)
            await self._say(f"550 5.1.1 <{path[1]}>: Recipient address rejected: User unknown")
        elif len(self._recipients) >= 100:
            await self._say("452 4.5.3 Too many recipients")
        else:
            self._recipients.append(path[1])
            await self._say("250 2.1.5 Ok")

    async def _data(self, rest: str) -> None:
        if rest or not self._recipients:
            await self._say("501 5.5.4 DATA takes no argument" if rest else "503 5.5.1 RCPT first")
            return
        await self._say("354 End data with <CR><LF>.<CR><LF>")
        lines: list[bytes] = []
        size = 0
        while (line := await self._raw_line()) != b".\r\n":
            size += len(line)
            if size <= _MAX_SIZE:
                lines.append(line[1:] if line.startswith(b".") else line)
        if size > _MAX_SIZE:
            await self._say("552 5.3.4 Message too big")
        else:
            headers = BytesHeaderParser(policy=SMTP).parsebytes(b"".join(lines))
            trace = {name: str(headers[name]) for name in ("x-fusion-job", "x-fusion-priority") if headers[name]}
            for recipient in self._recipients:
                number = self._ledger.accept("email", recipient, trace, str(headers["subject"] or ""))
            await self._say(f"250 2.0.0 Ok: queued as {number:08X}")
        self._reset()

    async def _auth(self, rest: str) -> None:
        assert self._login is not None
        if self._tls is not None and not self._secure:
            await self._say("538 5.7.11 Encryption required")
            return
        method, _, first = rest.partition(" ")
        try:
            if method.upper() == "PLAIN":
                given = _decode(first or await self._ask("")).split("\0")[1:]
            elif method.upper() == "LOGIN":
                given = [_decode(first or await self._ask("Username:")), _decode(await self._ask("Password:"))]
            else:
                await self._say("504 5.5.4 Unknown mechanism")
                return
        except (binascii.Error, UnicodeDecodeError):
            await self._say("501 5.5.2 Not base64")
            return
        self._authenticated = tuple(given) == self._login
        await self._say("235 2.7.0 Authenticated" if self._authenticated else "535 5.7.8 Authentication credentials invalid")

    async def _ask(self, prompt: str) -> str:
        await self._say("334 " + base64.b64encode(prompt.encode()).decode())
        return await self._line()

    async def _line(self) -> str:
        return (await self._raw_line()).decode("utf-8", "replace").rstrip("\r\n")

    async def _raw_line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except ValueError:  # longer than the stream's limit
            await self._say("500 5.5.2 Line too long")
            raise _Gone from None
        if not line.endswith(b"\n"):
            raise _Gone
        return line

    async def _say(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await self._writer.drain()


def _decode(text: str) -> str:
    return base64.b64decode(text, validate=True).decode()
