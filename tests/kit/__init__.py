"""What tests of several folders share. It imports nothing from those folders; tests/README.md says what is where."""
