"""What commands with `--json` and the HTTP service show alike: one document for each kind of thing."""
