"""Formats and names of the records that eomirror stores in Kafka: one type per module. Pure."""
