"""`manage.py fusion_start`."""

from __future__ import annotations

from fusion.contrib.django.commands import FusionCommand


class Command(FusionCommand):
    """`fusion start` with the project's settings."""

    name = "start"
