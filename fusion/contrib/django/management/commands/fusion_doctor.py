"""`manage.py fusion_doctor`."""

from __future__ import annotations

from fusion.contrib.django.commands import FusionCommand


class Command(FusionCommand):
    """`fusion doctor` with the project's settings."""

    name = "doctor"
