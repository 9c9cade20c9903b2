"""The dashboard as a model without a table, for Django's permissions."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class Dashboard(models.Model):
    """Any staff may view it; changes require one of its permissions."""

    class Meta:
        app_label = "fusion"
        managed = False
        default_permissions = ()
        permissions: ClassVar[list[tuple[str, str]]] = [
            ("operate_dashboard", "Can put back, cancel and pause on the dashboard"),
            ("administer_dashboard", "Can do everything on the dashboard"),
        ]
        verbose_name = verbose_name_plural = "dashboard"
