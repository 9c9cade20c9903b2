"""Reschedule jobs that wait for a time: `POST /api/v1/jobs/{id}/reschedule`."""

from __future__ import annotations

from datetime import datetime

from redis import Redis

from fusion.exceptions import InvalidJobOperation, InvalidName, NoSuchJobError
from fusion.job import Job
from fusion.kernel.timeutil import parse_moment, parse_seconds
from fusion.store.layout.names import check_job_id
from fusion.views.job import RescheduledView
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.openapi.shapes import fields
from fusion.web.routing import Body, Route, change
from fusion.web.within import check_job

_BODY = Body("Reschedule", fields(when={"description": "Seconds from now, 90s, 5m, 2h, 1d, or a time with its zone; 0 is now."}))


class Reschedule:
    """The call that moves a scheduled job."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def routes(self) -> list[Route]:
        """Return the routes."""
        path = "/api/v1/jobs/{id}/reschedule"
        return [
            change(path, self.move, "reschedule", body=_BODY, answer=RescheduledView, by_queue=True),
        ]

    def move(self, request: Request) -> Response:
        """Reschedule a job that waits for a time, or for a retry, to a time with its zone or a delay from now; 0 is now."""
        request.target = request.params["id"]
        body = request.json()
        if unknown := sorted(body.keys() - {"when"}):
            raise HttpError(
                422, "invalid_value", f"there is no field {unknown[0][:80]} here; there is when", field=unknown[0][:80]
            )
        try:
            job = Job(check_job(self._connection, request, check_job_id(request.target)), {}, self._connection)
            due = job.reschedule(_when(body.get("when")))
        except (InvalidName, NoSuchJobError) as error:
            raise HttpError(404, "no_such_job", str(error)) from None
        except InvalidJobOperation as error:
            raise HttpError(409, "wrong_state", str(error)) from None
        except (ValueError, TypeError) as error:
            raise HttpError(422, "invalid_value", f"when: {str(error).removeprefix('reschedule: ')}", field="when") from None
        return Response.view(RescheduledView(job_id=job.id, due_at=due))


def _when(given: object) -> datetime | float:
    """Return the given time as seconds from now or as a moment; ValueError for anything else."""
    if isinstance(given, bool) or not isinstance(given, (int, float, str)):
        raise ValueError('use seconds, a text like "5m", or a time with its zone')
    if not isinstance(given, str):
        return given
    try:
        return parse_seconds(given.removeprefix("+"))
    except ValueError:
        return parse_moment(given)
