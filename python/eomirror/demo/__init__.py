"""Embedded Apache Kafka clusters and the scenario that shows what the mirror is for."""
