"""Applications of tests: they write, read, commit offsets, and move between clusters."""
