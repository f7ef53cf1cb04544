"""Runs lanes as long Spark tasks; no other package imports pyspark."""
