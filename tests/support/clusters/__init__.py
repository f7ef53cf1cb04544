"""Brokers of tests, and what stands before them: proxies, users, quotas, policies, logs that are put back."""
