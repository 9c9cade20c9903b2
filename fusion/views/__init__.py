"""The public view of each thing, one class each. Its JSON, the HTTP answers, the schema and "all fields" on pages follow from it."""
