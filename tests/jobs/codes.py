"""Tasks that let a code out wherever a task can: what it prints, logs, raises, returns and names."""

from __future__ import annotations

import logging


def leak(code: str, how: str) -> str:
    print(f"printed {code}")
    logging.getLogger("codes").warning("logged %s", code)
    if how == "raise":
        raise ValueError(f"wrong {code}")
    if how == "class":
        raise type(f"Wrong{code}", (Exception,), {"__module__": __name__})(code)
    return code
