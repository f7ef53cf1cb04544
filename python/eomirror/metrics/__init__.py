"""Metrics of links, in Prometheus' text format: what they are called, how they are collected, how they are written."""
