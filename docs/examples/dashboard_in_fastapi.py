"""The dashboard in a FastAPI application, at /ops, for those of its users who may see it.

    pip install fastapi itsdangerous uvicorn 'fusion-queue[web]'
    python docs/examples/dashboard_in_fastapi.py 5000

Open http://127.0.0.1:5000/login/anna, in place of a login of your own, then http://127.0.0.1:5000/ops/.
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, Request
from starlette.middleware.sessions import SessionMiddleware

from fusion import AsyncQueue, get_current_connection
from fusion.dashboard import Dashboard

app = FastAPI()
app.add_middleware(SessionMiddleware, secret_key="from your own configuration")
#: Who may do what: read, operate or admin; all others have no access.
OPERATORS = {"anna": "admin", "ben": "read"}


@app.get("/login/{name}")
async def log_in(request: Request, name: str) -> str:
    request.session["user"] = name
    return f"you are {name}"


@app.get("/")
async def enqueue() -> str:
    job = await AsyncQueue("sms").enqueue("tasks.sms.sendSMS", {"to": "+4915112345678"}, priority="high")
    return f"enqueued {job.id}"


def user_of(request) -> str:
    """Of the session, which the middleware puts into the scope."""
    return request.origin["session"].get("user", "")


dashboard = Dashboard(
    get_current_connection(),
    auth=lambda request: OPERATORS.get(user_of(request)),
    actor=user_of,
    links=[("The application", "/")],
)
app.mount("/ops", dashboard.asgi)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]))
