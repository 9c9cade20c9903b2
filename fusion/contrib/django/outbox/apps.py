"""The app of INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """The tables of the outbox."""

    name = "fusion.contrib.django.outbox"
    label = "fusion_outbox"
    verbose_name = "Fusion's outbox"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the writer for what this process enqueues."""
        from fusion.contrib.django.outbox.writer import WRITER
        from fusion.middleware import register

        register(WRITER)
