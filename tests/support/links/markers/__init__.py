"""Looks for transactions of which a broker leaves markers out; see docs/adr/0012."""
