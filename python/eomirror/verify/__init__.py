"""Verifies a link's copies from the clusters' logs."""
