"""E-mail by SMTP: STARTTLS, TLS from the start, or neither; login when a user is named."""

from __future__ import annotations

import smtplib
import socket
import ssl
from contextlib import suppress
from email.message import EmailMessage
from email.utils import format_datetime, localtime, make_msgid

from . import settings
from .base import (
    InvalidPayload,
    Message,
    Provider,
    ProviderNotConfigured,
    ProviderRejected,
    ProviderUnavailable,
    Receipt,
    public_reason,
)
from .transport import tls_context

_PORTS = {"starttls": 587, "ssl": 465, "none": 25}


def email_provider() -> Provider:
    """The one FUSION_EMAIL_PROVIDER names."""
    chosen = settings.one_of("EMAIL_PROVIDER", ("sandbox", "smtp", "ses"), "sandbox")
    if chosen == "sandbox":
        host, port = _address(settings.get("SANDBOX_SMTP", settings.SANDBOX_SMTP))
        sender = settings.get("EMAIL_FROM", "fusion@example.com")
        return Smtp(host, port, name="sandbox", security="none", sender=sender)
    if chosen == "smtp":
        return Smtp(
            settings.need("SMTP_HOST", "the SMTP server"),
            int(settings.get("SMTP_PORT", "0")) if settings.get("SMTP_PORT", "0").isdecimal() else -1,
            security=settings.one_of("SMTP_SECURITY", ("starttls", "ssl", "none"), "starttls"),
            user=settings.get("SMTP_USER"),
            password=settings.get("SMTP_PASSWORD"),
            sender=settings.need("EMAIL_FROM", "the sender's address"),
            helo=settings.get("SMTP_HELO"),
        )
    from .aws import SesEmail

    return SesEmail(sender=settings.need("EMAIL_FROM", "the sender's address, verified in SES"))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise ProviderNotConfigured(f"FUSION_SANDBOX_SMTP is {text!r}; write host:port")
    return host, int(port)


class Smtp:
    """One connection per message. Port 0 means the usual one. `timeout` limits each step of the dialogue."""

    def __init__(
        self,
        host: str,
        port: int = 0,
        *,
        name: str = "smtp",
        security: str = "starttls",
        user: str = "",
        password: str = "",
        sender: str = "",
        helo: str = "",
    ) -> None:
        if not 0 <= port <= 65535:
            raise ProviderNotConfigured("FUSION_SMTP_PORT must be a port number")
        if user and security == "none":
            raise ProviderNotConfigured(
                "FUSION_SMTP_USER with FUSION_SMTP_SECURITY=none would send the password in clear: use starttls"
            )
        self.name = name
        self._host, self._port, self._security = host, port or _PORTS[security], security
        self._user, self._password, self._sender = user, password, sender
        # smtplib's own choice, getfqdn(), may wait for DNS.
        self._helo = helo or (socket.gethostname() if "." in socket.gethostname() else "[127.0.0.1]")

    def send(self, message: Message, timeout: float) -> Receipt:
        """Hand the message over; see `Provider.send`."""
        mail = compose(message, self._sender)
        where = f"{self._host}:{self._port}"
        try:
            server = self._connect(timeout)
            try:
                refused = server.send_message(mail, from_addr=mail["From"].addresses[0].addr_spec, to_addrs=list(message.to))
                with suppress(smtplib.SMTPException, OSError):
                    server.quit()  # The mail is taken: a failing farewell must not make us send it again.
            finally:
                server.close()
        except smtplib.SMTPRecipientsRefused as error:
            code, reason = next(iter(error.recipients.values()))
            raise self._error(code, reason, message) from None
        except smtplib.SMTPResponseException as error:
            raise self._error(error.smtp_code, error.smtp_error, message) from None
        except smtplib.SMTPNotSupportedError as error:
            raise ProviderNotConfigured(f"{self.name}: {where}: {error}; see FUSION_SMTP_SECURITY") from None
        except ssl.SSLCertVerificationError as error:
            raise ProviderRejected(
                f"{self.name}: {where}: certificate not trusted ({error.verify_message}); see SSL_CERT_FILE"
            ) from None
        except TimeoutError:
            raise TimeoutError(f"{self.name}: {where}: no connection within {timeout:g} s") from None
        except (smtplib.SMTPException, OSError) as error:
            raise ProviderUnavailable(
                f"{self.name}: {where}: {getattr(error, 'strerror', None) or type(error).__name__}"
            ) from None
        status = f"partial: {len(refused)} of {len(message.to)} refused" if refused else "accepted"
        return Receipt(self.name, mail["Message-ID"], message.masked, status)

    def _connect(self, timeout: float) -> smtplib.SMTP:
        if self._security == "ssl":
            server: smtplib.SMTP = smtplib.SMTP_SSL(self._host, self._port, self._helo, timeout=timeout, context=tls_context())
        else:
            server = smtplib.SMTP(self._host, self._port, self._helo, timeout=timeout)
        try:
            if self._security == "starttls":
                server.starttls(context=tls_context())
            if self._user:
                server.login(self._user, self._password)
        except BaseException:
            server.close()
            raise
        return server

    def _error(self, code: int, reason: bytes | str, message: Message) -> Exception:
        words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        text = f"{self.name}: SMTP {code}: {public_reason(words, message, (self._password,))}"
        return ProviderUnavailable(text) if 400 <= code < 500 else ProviderRejected(text)


def compose(message: Message, sender: str) -> EmailMessage:
    """The mail itself. Its Message-ID comes from the job's id, so that any mail server recognizes a repeated delivery."""
    content = message.content
    mail = EmailMessage()
    try:
        mail["From"] = content.get("from") or sender
        mail["To"] = ", ".join(content["to"])
        if content.get("cc"):
            mail["Cc"] = ", ".join(content["cc"])
        if content.get("reply_to"):
            mail["Reply-To"] = content["reply_to"]
        mail["Subject"] = content["subject"]
        for name, value in {**content.get("headers", {}), **message.trace}.items():
            mail[name] = value
        domain = mail["From"].addresses[0].domain
        if not domain:
            raise ValueError
        mail["Message-ID"] = f"<{message.job_id}@{domain}>" if message.job_id else make_msgid(domain=domain)
    except (ValueError, IndexError):  # a line break in a header, a second Subject, a sender that is no address
        raise InvalidPayload("e-mail: a header of the payload is not allowed or not well-formed") from None
    mail["Date"] = format_datetime(localtime())
    if message.text or not content.get("html"):
        mail.set_content(message.text)
        if content.get("html"):
            mail.add_alternative(content["html"], subtype="html")
    else:
        mail.set_content(content["html"], subtype="html")
    return mail
