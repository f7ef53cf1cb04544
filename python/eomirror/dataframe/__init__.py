"""DataFrames in and out of Kafka, and the offsets that Spark keeps of them; needs the extra ``arrow``."""
