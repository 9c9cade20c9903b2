import os
import sys

# A file beside this one that is called as a module of the standard library, resource.py say, is none that Python's own modules import.
_HOME = os.path.dirname(os.__file__)
sys.path.sort(key=lambda entry: entry not in (_HOME, os.path.join(_HOME, "lib-dynload")))

from fusion.cli.main import add_command, main  # noqa: E402

add_command("demo", "tools.demo.demo:demo", "Watch Fusion work, with a built-in Redis and a sandbox.")
main()
