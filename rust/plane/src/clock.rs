//! Where time comes from. Pure code takes `now` as an argument; only the edge asks a [`Clock`].

use std::time::Instant;

/// A clock that never goes back.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Instant;
}

/// The machine's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the one place that may ask
    fn now(&self) -> Instant {
        Instant::now()
    }
}
