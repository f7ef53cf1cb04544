//! The time at which a producer must be called again.

use std::time::Instant;

/// The earliest of several times.
#[derive(Debug, Default)]
pub(super) struct WakeUp(Option<Instant>);

impl WakeUp {
    /// Adds a time; None adds none.
    pub(super) fn add(&mut self, at: Option<Instant>) {
        self.0 = match (self.0, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    pub(super) const fn at(&self) -> Option<Instant> {
        self.0
    }
}
