"""Proof that a link does what it promises, read from the clusters' logs."""
