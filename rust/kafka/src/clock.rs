//! The source of time. Pure code takes `now` as an argument; only I/O code asks a [`Clock`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A monotonic clock, and the wall clock.
pub trait Clock: Send + Sync {
    /// Returns the current monotonic time.
    fn now(&self) -> Instant;

    /// Returns the wall-clock time since 1970, only for values that other systems compare with their clocks.
    #[allow(clippy::disallowed_methods)] // this is the one place that may ask
    fn unix_time(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }
}

/// The system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the one place that may ask
    fn now(&self) -> Instant {
        Instant::now()
    }
}
