"""Topics and configurations of the target: desired against actual."""
