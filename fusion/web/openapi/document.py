"""Make the OpenAPI document from the table of routes, and serve it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import fusion
from fusion.views.base import View, definition, within
from fusion.web.exchange import Request, Response
from fusion.web.openapi.shapes import TEXT, Schema, fields, maybe, ref
from fusion.web.routing import Param, Route

#: The schema of an error.
_ERROR = fields(error=fields(code=TEXT, message=TEXT, field=maybe(TEXT)))


class OpenApi:
    """Describes these routes, and its own."""

    def __init__(self, routes: Iterable[Route]) -> None:
        own = Route("GET", "/api/v1/openapi.json", self.answer, "read", "openapi", by_queue=True)
        self._routes = [*routes, own]
        self._made: dict[str, Any] | None = None

    def routes(self) -> list[Route]:
        """Return all routes, with its own."""
        return self._routes

    def answer(self, request: Request) -> Response:
        """Describe the API."""
        self._made = self._made or document(self._routes)
        return Response.json(self._made)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the description of the API in OpenAPI 3.1."""
    routes = list(routes)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fusion",
            "version": fusion.__version__,
            "description": "A Redis-backed priority task queue over HTTP. docs/http.md explains the terms.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": _schemas(routes),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Made by `server token`."}},
            "responses": {
                "Error": {"description": "What was wrong.", "content": {"application/json": {"schema": ref("Error")}}},
            },
        },
    }


def _schemas(routes: Iterable[Route]) -> dict[str, Schema]:
    """Return the schemas of bodies, and of the views in answers. ValueError for two with the same name."""
    kinds: dict[str, type[View]] = {}
    bodies = {route.body.name: route.body.schema for route in routes if route.body}
    for route in routes:
        for kind in within(route.answer):
            if kinds.setdefault(kind.SCHEMA, kind) is not kind or kind.SCHEMA in bodies:
                raise ValueError(f"two schemas have the name {kind.SCHEMA}")
    return {"Error": _ERROR, **bodies, **{name: definition(kind) for name, kind in kinds.items()}}


def _operation(route: Route) -> dict[str, Any]:
    said = " ".join((route.handler.__doc__ or "").split())
    about: dict[str, Any] = {
        "operationId": route.called or route.action,
        "summary": said.partition(". ")[0].rstrip("."),
        "description": said,
        "parameters": [*_in_path(route), *map(_in_query, route.query)],
        "responses": _responses(route),
    }
    if route.keyed:
        about["parameters"].append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "description": "A request that is repeated with the same key takes effect once.",
                "schema": {"type": "string", "maxLength": 255},
            }
        )
    if route.body:
        about["requestBody"] = {
            "required": route.body.needed,
            "content": {"application/json": {"schema": ref(route.body.name)}},
        }
    if route.scope is None:
        about["security"] = []
    else:
        about["security"] = [{"token": []}]
        about["x-scope"] = route.scope
        about["x-for-some-queues"] = route.by_queue
    return about


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _in_query(param: Param) -> dict[str, Any]:
    schema: Schema = {"type": param.kind}
    if param.kind == "integer":
        schema |= {"minimum": 0} | ({} if param.most is None else {"maximum": param.most})
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.default is not None:
        schema["default"] = param.default
    return {"name": param.name, "in": "query", "description": param.about, "schema": schema}


def _responses(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": route.answer_schema}}
    if route.rows:
        content |= {kind: {"schema": {"type": "string"}} for kind in ("text/csv", "application/x-ndjson")}
    told = {"description": "Done.", "content": content}
    return {**dict.fromkeys(map(str, route.statuses), told), "default": {"$ref": "#/components/responses/Error"}}
