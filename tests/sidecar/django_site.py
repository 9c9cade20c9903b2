"""A Django site in one file, `django_site.py runserver ADDRESS`: its reloader runs it twice, and both processes report that they are ready."""

from __future__ import annotations

import os
import sys

from django.apps import AppConfig  # type: ignore[import-not-found,unused-ignore]
from django.conf import settings  # type: ignore[import-not-found,unused-ignore]
from django.core.management import execute_from_command_line  # type: ignore[import-not-found,unused-ignore]


class Shop(AppConfig):  # type: ignore[misc,unused-ignore]
    name = "tests.sidecar"
    label = "shop"

    def ready(self) -> None:
        if os.environ["STARTED_IN"] == "ready":
            import tests.sidecar.wsgi  # noqa: F401


def main() -> None:
    settings.configure(
        DEBUG=True,
        SECRET_KEY="of tests",
        ROOT_URLCONF="tests.sidecar.django_site",
        INSTALLED_APPS=["tests.sidecar.django_site.Shop"],
        WSGI_APPLICATION="tests.sidecar.wsgi.application",
        LOGGING_CONFIG=None,
        USE_TZ=True,
    )
    execute_from_command_line(sys.argv)


urlpatterns: list[object] = []

if __name__ == "__main__":
    main()
