"""`python -m benchmarks ab OLD NEW`: two versions of Fusion beside each other, closely enough to see 3 % (benchmarks/README.md).

Both are driven by their command line and their public API alone, so that their insides may differ.
"""
