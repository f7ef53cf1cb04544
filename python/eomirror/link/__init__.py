"""State of one link on its target: ownership, generations, positions, status and topics that it reads there."""
