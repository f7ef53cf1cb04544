"""The operator's HTTP endpoints: metrics, health, a page and its data, all read-only."""
