"""Recovers a lane's partitions: resume offsets, hanging transactions and corrupt batches."""
