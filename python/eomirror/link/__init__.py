"""State of one link on its target: ownership, generations, positions, status and the topics that it reads there."""
