"""The HTTP service: a framework-free core that runs as WSGI or ASGI, and its JSON API. docs/http.md describes it for its users."""
