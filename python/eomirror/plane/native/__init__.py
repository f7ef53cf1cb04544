"""The native plane: whole record batches in transactions of protocol V2, moved by the Rust extension."""
