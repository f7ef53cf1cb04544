"""Supervises the links and lanes of one run: starts, retries, watches and reports them."""
