"""What the store may do, in plain Python, beside what the real scripts do: walked at random, and every order of a few steps."""
