"""Routes of things other than jobs."""
