//! How long to wait before the same is asked again: backoff double while it is of no use. Pure.

use std::time::{Duration, Instant};

/// The first pause, and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackoffLimits {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// Backoff between questions.
#[derive(Debug)]
pub(crate) struct Backoff {
    limits: BackoffLimits,
    asked: Option<Instant>,
    pause: Duration,
    /// How often it was asked since all was well.
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

    /// When it may be asked again; None for at once.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.asked.map(|asked| asked + self.pause)
    }

    /// It is asked now. `spread` stretches the pause that follows, so that the lanes of a mirror do not come back in step.
    pub(crate) fn asked(&mut self, spread: f64, now: Instant) {
        let doubled = self.limits.first.saturating_mul(1 << self.times.min(16));
        self.asked = Some(now);
        self.pause = doubled.min(self.limits.longest).mul_f64(spread);
        self.times = self.times.saturating_add(1);
    }

    /// All is well, or it is something else that is wrong now: the backoff begin anew, and that one is cut which is on.
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
    fn pauses_are_spread_and_a_first_one_beyond_the_longest_is_the_longest() {
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
