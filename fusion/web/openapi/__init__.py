"""The API described as OpenAPI 3.1, made from the table of routes."""
