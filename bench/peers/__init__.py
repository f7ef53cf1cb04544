"""Mirrors that the bench runs, each in processes of its own."""
