"""The lane: a pure state machine, and the runner that carries out its commands."""
