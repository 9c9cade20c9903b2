"""The query language: which jobs somebody means. Pure: it asks nobody."""
