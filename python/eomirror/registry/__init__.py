"""Mirrors schema registries through their API: subjects, versions, ids, references, compatibility and deletions."""
