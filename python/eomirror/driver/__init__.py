"""Supervises the links and lanes of one run: starts, retries and monitors them, and reports their progress."""
