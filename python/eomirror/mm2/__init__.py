"""Going on where another replicator stopped, at its very next record."""
