"""The engine: lanes as long Spark tasks; nothing else imports pyspark."""
