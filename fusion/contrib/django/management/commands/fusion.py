"""`manage.py fusion COMMAND`: all commands."""

from __future__ import annotations

from fusion.contrib.django.commands import FusionCommand


class Command(FusionCommand):
    """The command line of Fusion with the project's settings."""
