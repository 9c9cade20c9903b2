"""`python -m tasks.sandbox`: the sandbox providers as a process of their own."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading

from .server import Sandbox


def main() -> None:
    """Run until INT or TERM. The ready file is written whole, after both servers accept connections."""
    parser = argparse.ArgumentParser(
        prog="python -m tasks.sandbox", description="Local SMS, e-mail, push, webhook and WhatsApp providers"
    )
    parser.add_argument("--port", type=int, default=8925, help="HTTP port, 0 = any free one (default: %(default)s)")
    parser.add_argument("--smtp-port", type=int, default=8926, help="SMTP port, 0 = any free one (default: %(default)s)")
    parser.add_argument("--ready-file", metavar="PATH", help="write the addresses there as JSON once connections are accepted")
    options = parser.parse_args()
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    try:
        sandbox = Sandbox(options.port, options.smtp_port).start()
    except (OSError, OverflowError) as error:
        parser.exit(1, f"{parser.prog}: {error}; choose another --port or --smtp-port, or 0 for any free one\n")
    ready = {"url": sandbox.url, "smtp": sandbox.smtp, "env": sandbox.env(), "pid": os.getpid()}
    for name, value in sandbox.env().items():
        print(f"{name}={value}", flush=True)
    if options.ready_file:
        temporary = f"{options.ready_file}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(ready, file)
        os.replace(temporary, options.ready_file)
    done.wait()
    sandbox.stop()


if __name__ == "__main__":
    main()
