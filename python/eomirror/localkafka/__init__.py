"""Apache Kafka clusters on this machine, for the demo, tests, benchmarks and `eomirror cluster`."""
