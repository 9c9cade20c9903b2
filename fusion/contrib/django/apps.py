"""The app of INSTALLED_APPS."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.apps import AppConfig
from django.core.signals import setting_changed

from fusion.settings import use_settings

CONFIG = "fusion.contrib.django.config"


class FusionConfig(AppConfig):
    """Fusion as an app: its settings are `FUSION` in the project's settings."""

    name = "fusion.contrib.django"
    label = "fusion"
    verbose_name = "Fusion"
    default_auto_field = "django.db.models.BigAutoField"

    def __init__(self, *args: Any, **options: Any) -> None:
        """Make this process, and those it starts, read the project's settings; this must come before any module of models uses a queue."""
        super().__init__(*args, **options)
        if not os.environ.get("RQ_CONFIG"):
            os.environ.setdefault("FUSION_CONFIG", CONFIG)

    def import_models(self) -> None:
        """Before the project's code can enqueue: defer what is enqueued in transactions, and support Django's tasks if the project has TASKS.

        Django makes permissions only for apps with a module of models. The model for the dashboard's permissions stands for it.
        """
        from importlib import import_module

        from django.conf import settings

        from fusion.middleware import register

        super().import_models()
        self.models_module = import_module("fusion.contrib.django.permissions")
        register(import_module("fusion.contrib.django.commits").ON_COMMIT)
        if settings.is_overridden("TASKS"):
            import_module("fusion.contrib.django.tasks")

    def ready(self) -> None:
        """Register the checks; reload the settings when a test uses `override_settings`."""
        from fusion.contrib.django import checks

        checks.register_all()
        setting_changed.connect(_changed)


def _changed(*, setting: str, **_: Any) -> None:
    if setting == "FUSION":
        sys.modules.pop(CONFIG, None)
        use_settings(None)
