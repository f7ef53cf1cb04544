//! How long to wait before the same is asked again: pauses double while it is of no use. Pure.

use std::time::{Duration, Instant};

/// The first pause, and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// Pauses between questions.
#[derive(Debug)]
pub(crate) struct Pauses {
    backoff: Backoff,
    asked: Option<Instant>,
    pause: Duration,
    /// How often it was asked since all was well.
    times: u32,
}

impl Pauses {
    pub(crate) const fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
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
        let doubled = self.backoff.first.saturating_mul(1 << self.times.min(16));
        self.asked = Some(now);
        self.pause = doubled.min(self.backoff.longest).mul_f64(spread);
        self.times = self.times.saturating_add(1);
    }

    /// All is well, or it is something else that is wrong now: the pauses begin anew, and that one is cut which is on.
    pub(crate) fn begin_anew(&mut self) {
        self.times = 0;
        self.pause = self.pause.min(self.backoff.first);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Backoff, Pauses};

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_millis(100),
        longest: Duration::from_secs(1),
    };

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew() {
        let now = Instant::now();
        let mut pauses = Pauses::new(BACKOFF);
        assert_eq!(pauses.until(), None, "the first time it is asked at once");
        for millis in [100, 200, 400, 800, 1000, 1000] {
            pauses.asked(1.0, now);
            assert_eq!(pauses.until(), Some(now + Duration::from_millis(millis)));
        }
        pauses.begin_anew();
        assert_eq!(pauses.until(), Some(now + BACKOFF.first));
        pauses.asked(1.0, now);
        assert_eq!(pauses.until(), Some(now + BACKOFF.first));
    }

    #[test]
    fn pauses_are_spread_and_a_first_one_beyond_the_longest_is_the_longest() {
        let now = Instant::now();
        let mut pauses = Pauses::new(BACKOFF);
        pauses.asked(1.2, now);
        assert_eq!(pauses.until(), Some(now + Duration::from_millis(120)));
        // as librdkafka has it
        let first = Duration::from_secs(5);
        let mut pauses = Pauses::new(Backoff { first, ..BACKOFF });
        pauses.asked(0.5, now);
        assert_eq!(pauses.until(), Some(now + Duration::from_millis(500)));
    }
}
