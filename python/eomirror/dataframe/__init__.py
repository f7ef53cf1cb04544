"""Kafka topics as DataFrames: ``format("eomirror")``, and the offsets that Spark keeps of them."""
