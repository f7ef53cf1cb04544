"""The native plane: whole record batches in transactions, moved by the Rust extension."""
