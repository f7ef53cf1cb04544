"""The status of a link: one model, from its topics or from a running driver."""
