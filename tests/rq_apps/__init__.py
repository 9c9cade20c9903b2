"""Small applications as users of RQ write them: run with stock RQ, and with nothing changed but import lines and two environment variables."""
