"""Topic names, filters, replication cycles and lane layouts: decides the target of each record. Pure."""
