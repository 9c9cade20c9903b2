"""`manage.py fusion_scheduler`."""

from __future__ import annotations

from fusion.contrib.django.commands import FusionCommand


class Command(FusionCommand):
    """`fusion scheduler` with the project's settings."""

    name = "scheduler"
