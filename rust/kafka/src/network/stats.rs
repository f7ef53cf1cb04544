//! What the connections to a cluster have carried, and how they were held back.

use std::time::Duration;

/// Bytes of requests and answers, without handshakes and TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Of requests.
    pub sent: u64,
    /// Of answers.
    pub received: u64,
}

/// How brokers' quotas held us back (KIP-13, KIP-219).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Throttled {
    /// Answers in which a broker asked to be left alone.
    pub answers: u64,
    /// For how long brokers were left alone because of that; for several brokers, the sum.
    pub time: Duration,
}

impl Throttled {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            answers: self.answers.saturating_add(other.answers),
            time: self.time.saturating_add(other.time),
        }
    }
}
