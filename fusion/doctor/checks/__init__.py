"""The checks, grouped by what they examine. Each yields its findings, and nothing if all is well."""
