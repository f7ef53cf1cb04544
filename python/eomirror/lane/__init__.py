"""The lane: pure state machine, plane contract, and the pump that carries it out."""
