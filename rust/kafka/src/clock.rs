//! Where time comes from. Pure code takes `now` as an argument; only the edge asks a [`Clock`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock: one that never goes back, and the wall clock.
pub trait Clock: Send + Sync {
    /// The present moment.
    fn now(&self) -> Instant;

    /// Time since 1970 as the system has it: for what others check by their clocks, and for nothing else.
    #[allow(clippy::disallowed_methods)] // this is the one place that may ask
    fn unix_time(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
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
