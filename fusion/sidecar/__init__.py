"""A worker that a web application starts beside itself and ends with it: docs/internals/sidecar.md."""

from __future__ import annotations

#: Switches it off for all that is started in an environment: workers, cron's collectors and jobs may import the application.
SWITCH = "FUSION_EMBEDDED_WORKER"
