"""The checks, by what they look at. Each yields what it found, and nothing while all is well."""
