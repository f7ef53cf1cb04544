"""The records and names that stand in Kafka: one wire type a file."""
