"""Stand-ins without a broker: for the order of our own steps, never for what Kafka does."""
