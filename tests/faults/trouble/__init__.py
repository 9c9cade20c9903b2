"""A Redis that is slow, silent, full, refusing, moved, replaced, or gone."""
