"""`manage.py fusion_info`."""

from __future__ import annotations

from fusion.contrib.django.commands import FusionCommand


class Command(FusionCommand):
    """`fusion info` with the project's settings."""

    name = "info"
