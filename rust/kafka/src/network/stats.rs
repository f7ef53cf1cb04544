//! Traffic and throttling statistics of the connections to a cluster.

use std::time::Duration;

/// Bytes of requests and answers, without handshakes and TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes of requests.
    pub sent: u64,
    /// Bytes of answers.
    pub received: u64,
}

/// Throttling by brokers' quotas (KIP-13, KIP-219).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttled {
    /// Answers that requested a pause.
    pub answers: u64,
    /// Total duration of the pauses, summed over brokers.
    pub time: Duration,
}

impl Throttled {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            answers: self.answers.saturating_add(other.answers),
            time: self.time.saturating_add(other.time),
        }
    }
}
