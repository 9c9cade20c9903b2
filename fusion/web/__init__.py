"""The HTTP service: a framework-free core that runs as WSGI or ASGI, and its JSON API. docs/http.md is for those who call it."""
