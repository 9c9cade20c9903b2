"""Providers to talk to when there are none: one HTTP and one SMTP server on this machine, as strict as the real ones.

    python -m tasks.sandbox [--port 8925] [--smtp-port 8926] [--ready-file PATH]

HTTP plays an SMS gateway (`POST /sms/messages`, JSON or form), FCM HTTP v1, the WhatsApp Cloud API and the receiving end of
webhooks (`/webhook/<percent-encoded url>`); SMTP plays a mail server. Loopback only. Every accepted delivery is recorded.

    GET  /_deliveries?since=N   {"next": N2, "deliveries": [{n, channel, to, job, priority, time, text}]}; ask again with since=N2
    GET  /_stats                totals, by channel, by priority, distinct jobs, duplicates, refused (by channel and status)
    POST /_faults               {"channel": "sms", "status": 503, "count": 3, "delay": 0.2, "retry_after": 1, "drop": false}
    DELETE /_faults             back to normal
    DELETE /_deliveries         forget everything

Channels are sms, email, pn, webhook, whatsapp, or * for all. A fault without `count` lasts until it is deleted; without `status`
and `drop` it only delays. E-mail faults take SMTP codes (451, 550). Always refused: numbers ending in 0000 (unknown subscriber),
tokens ending in 0000 (unregistered), mailboxes named `unknown` or `unknown.*` (no such user), webhooks ending in /gone (410).
"""

from __future__ import annotations

from .server import Sandbox

__all__ = ["Sandbox"]
