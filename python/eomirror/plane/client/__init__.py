"""The client plane: librdkafka through confluent-kafka."""
