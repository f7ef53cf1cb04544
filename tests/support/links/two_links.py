"""A configuration of two links from one cluster, of which tests have one fail."""

from __future__ import annotations

__all__ = ["TWO_LINKS"]

TWO_LINKS = """
clusters:
  west: {bootstrap.servers: "127.0.0.1:1"}
  north: {bootstrap.servers: "127.0.0.1:2"}
  east: {bootstrap.servers: "127.0.0.1:3"}
links:
  - {source: west, target: north, topics: [orders]}
  - {source: west, target: east, topics: [orders]}
"""
