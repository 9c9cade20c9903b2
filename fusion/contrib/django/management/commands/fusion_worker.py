"""`manage.py fusion_worker`."""

from __future__ import annotations

from fusion.contrib.django.commands import FusionCommand


class Command(FusionCommand):
    """`fusion worker` with the project's settings."""

    name = "worker"
