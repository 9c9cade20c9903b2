"""Fusion in frameworks. Each brings an extra; nothing else of Fusion imports what is here."""
