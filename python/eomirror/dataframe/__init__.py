"""DataFrames in and out of Kafka; needs pyspark and the extra ``arrow``."""
