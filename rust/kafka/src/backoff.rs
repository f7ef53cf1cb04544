//! Exponential backoff between attempts. Pure.

use std::time::{Duration, Instant};

/// The first pause and the longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackoffLimits {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// Pauses between attempts, which double while the attempts fail.
#[derive(Debug)]
pub(crate) struct Backoff {
    limits: BackoffLimits,
    asked: Option<Instant>,
    pause: Duration,
    /// Attempts since the last success.
    times: u32,
}

impl Backoff {
    pub(crate) const fn new(limits: BackoffLimits) -> Self {
        Self {
            limits,
            asked: None,
            pause: Duration::ZERO,
            times: 0,
        }
    }

    /// Returns the time of the next attempt; None for at once.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.asked.map(|asked| asked + self.pause)
    }

    /// Notes an attempt. `spread` stretches the pause after it, so that clients do not retry in step.
    pub(crate) fn asked(&mut self, spread: f64, now: Instant) {
        let doubled = self.limits.first.saturating_mul(1 << self.times.min(16));
        self.asked = Some(now);
        self.pause = doubled.min(self.limits.longest).mul_f64(spread);
        self.times = self.times.saturating_add(1);
    }

    /// Notes a success, or another kind of failure: the next pause is the first one again, and the current one is cut
    /// to it.
    pub(crate) fn begin_anew(&mut self) {
        self.times = 0;
        self.pause = self.pause.min(self.limits.first);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Backoff, BackoffLimits};

    const BACKOFF: BackoffLimits = BackoffLimits {
        first: Duration::from_millis(100),
        longest: Duration::from_secs(1),
    };

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let now = Instant::now();
        let mut backoff = Backoff::new(BACKOFF);
        assert_eq!(backoff.until(), None, "the first time it is asked at once");
        for millis in [100, 200, 400, 800, 1000, 1000] {
            backoff.asked(1.0, now);
            assert_eq!(backoff.until(), Some(now + Duration::from_millis(millis)));
        }
        backoff.begin_anew();
        assert_eq!(backoff.until(), Some(now + BACKOFF.first));
        backoff.asked(1.0, now);
        assert_eq!(backoff.until(), Some(now + BACKOFF.first));
    }

    #[test]
    fn pauses_are_spread_and_never_exceed_the_longest() {
        let now = Instant::now();
        let mut backoff = Backoff::new(BACKOFF);
        backoff.asked(1.2, now);
        assert_eq!(backoff.until(), Some(now + Duration::from_millis(120)));
        // as librdkafka has it
        let first = Duration::from_secs(5);
        let mut backoff = Backoff::new(BackoffLimits { first, ..BACKOFF });
        backoff.asked(0.5, now);
        assert_eq!(backoff.until(), Some(now + Duration::from_millis(500)));
    }
}
