"""Consumers that move to the other side of a mirror at random moments: what they skip, and what they read twice."""
