"""The dashboard in a Flask application, at /ops, for those of its users who may see it.

    pip install flask 'fusion-queue[web]'
    python docs/examples/dashboard_in_flask.py 5000

Open http://127.0.0.1:5000/login/anna, in place of a login of your own, then http://127.0.0.1:5000/ops/.
"""

from __future__ import annotations

import sys

from flask import Flask, Request, Response, redirect, session
from waitress import serve
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from fusion import Queue, get_current_connection
from fusion.dashboard import Dashboard

app = Flask(__name__)
app.secret_key = "from your own configuration"  # noqa: S105
#: Who may do what: read, operate or admin; all others have no access.
OPERATORS = {"anna": "admin", "ben": "read"}


@app.get("/login/<name>")
def log_in(name: str) -> Response:
    session["user"] = name
    return redirect("/")


@app.get("/")
def enqueue() -> str:
    job = Queue("sms").enqueue("tasks.sms.sendSMS", {"to": "+4915112345678"}, priority="high")
    return f"enqueued {job.id}"


def user_of(request) -> str:
    """Of the session that the application keeps."""
    found = app.session_interface.open_session(app, Request(request.origin))
    return found.get("user", "") if found else ""


dashboard = Dashboard(
    get_current_connection(),
    auth=lambda request: OPERATORS.get(user_of(request)),
    actor=user_of,
    links=[("The application", "/")],
)
app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/ops": dashboard.wsgi})

if __name__ == "__main__":
    serve(app, host="127.0.0.1", port=int(sys.argv[1]))
