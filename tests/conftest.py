"""Fixtures for all tests.  They live in ``fix_*.py`` files, one for each thing that a test may need."""

from __future__ import annotations

pytest_plugins = ["fix_kafka", "fix_rig", "fix_spark"]
