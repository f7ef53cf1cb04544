"""Resumes a flow of another replicator at its very next record, and hands it back."""
