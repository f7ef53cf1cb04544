"""Adapters over confluent-kafka; nothing else imports it."""
