"""What people and programs are shown of each thing: one class per thing. JSON, HTTP, its schema and "all fields" on pages follow from it."""
