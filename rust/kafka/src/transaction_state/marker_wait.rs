//! Delays the first records of a transaction until the markers of the previous one are written.
//!
//! The coordinator answers `EndTxn` when the decision is in its log, and writes the markers afterwards. A producer that
//! writes into the next transaction earlier is not rejected (KIP-890): the partition's leader asks the coordinator
//! again, but only after `add.partitions.to.txn.retry.backoff.ms`, 20 by default (KAFKA-18654). Markers take a few
//! milliseconds. A lane that commits small transactions in sequence would pay this backoff each time.
//!
//! So the producer asks the coordinator for the state of the transactional id (`DescribeTransactions`, KIP-664) at the
//! time when the markers are probably written, learned from earlier transactions. It asks even without waiting records,
//! so that records arriving after a short pause lose no time.
//!
//! ```text
//! since the end            action, and effect on records
//! ----------------------   --------------------------------------------------------------------
//! less than usual          wait
//! about as long as usual   ask; while the markers are being written, again a quarter later each time
//! 20 ms or three times it  send: the markers are most likely written, and otherwise the leader asks
//! ```
//!
//! The response affects only latency. Without one, the producer sends after the maximum wait.

use std::time::{Duration, Instant};

/// Initial and smallest learned duration.
const LEAST: Duration = Duration::from_millis(1);
/// Largest learned duration.
const MOST: Duration = Duration::from_millis(30);
/// Minimum of the maximum wait, which is otherwise three times the usual duration.
const SURE: Duration = Duration::from_millis(20);
/// Minimum interval between two requests.
const PAUSE: Duration = Duration::from_micros(700);

/// Action for waiting records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send them.
    Go,
    /// Wait until this time; the coordinator is not asked before.
    Wait(Instant),
    /// Wait for the coordinator's response, at most until this time.
    Asked(Instant),
    /// Ask the coordinator; see [`MarkerWait::asked`].
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Written,
    Writing {
        ended: Instant,
        next: Instant,
        asked: bool,
        /// True once the coordinator has reported that the markers are being written.
        seen: bool,
    },
}

/// Tracks the markers of a producer's last transaction.
#[derive(Debug, Clone)]
pub struct MarkerWait {
    phase: Phase,
    usual: Duration,
    /// True if the coordinator does not support the request.
    silent: bool,
}

impl Default for MarkerWait {
    fn default() -> Self {
        Self::new()
    }
}

impl MarkerWait {
    /// Returns the state of a producer without an earlier transaction.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::Written,
            usual: LEAST,
            silent: false,
        }
    }

    /// Records a response to `EndTxn`: the markers are now being written.
    pub fn ended(&mut self, now: Instant) {
        if !self.silent {
            self.phase = Phase::Writing {
                ended: now,
                next: now + self.usual,
                asked: false,
                seen: false,
            };
        }
    }

    /// Ends the wait: the markers are written, or their state cannot be determined.
    pub const fn written(&mut self) {
        self.phase = Phase::Written;
    }

    /// Returns the action for waiting records.
    pub fn wants(&mut self, now: Instant) -> Step {
        let Phase::Writing {
            ended, next, asked, ..
        } = self.phase
        else {
            return Step::Go;
        };
        let sure = ended + SURE.max(self.usual * 3);
        if now >= sure {
            self.written();
            Step::Go
        } else if asked {
            Step::Asked(sure)
        } else if now < next {
            Step::Wait(next)
        } else {
            Step::Ask
        }
    }

    /// Records a request to the coordinator.
    pub const fn asked(&mut self) {
        if let Phase::Writing { asked, .. } = &mut self.phase {
            *asked = true;
        }
    }

    /// Takes the coordinator's response: whether the markers are still being written.
    pub fn told(&mut self, writing: bool, now: Instant) {
        let Phase::Writing { ended, seen, .. } = self.phase else {
            return;
        };
        let since = now.saturating_duration_since(ended);
        if writing {
            self.phase = Phase::Writing {
                ended,
                next: now + (since / 4).max(PAUSE),
                asked: false,
                seen: true,
            };
            return;
        }
        self.usual = if seen {
            // between the last two requests
            (self.usual * 3 + since) / 4
        } else {
            // possibly written some time before the first request
            self.usual * 15 / 16
        }
        .clamp(LEAST, MOST);
        self.phase = Phase::Written;
    }

    /// Disables the wait: the coordinator does not support the request.
    pub const fn silence(&mut self) {
        self.silent = true;
        self.written();
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, LEAST, MOST, MarkerWait, SURE, Step};

    const MS: Duration = Duration::from_millis(1);

    /// Asks until records may be sent; writing the markers takes `takes`. Returns the wait and the number of requests.
    fn wait(markers: &mut MarkerWait, takes: Duration, trip: Duration) -> (Duration, u32) {
        let ended = Instant::now();
        let (mut now, mut asked) = (ended, 0);
        markers.ended(now);
        loop {
            match markers.wants(now) {
                Step::Go => return (now - ended, asked),
                Step::Wait(until) | Step::Asked(until) => {
                    assert!(until > now);
                    now = until;
                }
                Step::Ask => {
                    asked += 1;
                    markers.asked();
                    assert!(matches!(markers.wants(now), Step::Asked(_)));
                    let writing = now + trip / 2 < ended + takes;
                    now += trip;
                    markers.told(writing, now);
                }
            }
        }
    }

    #[test]
    fn a_first_transaction_waits_for_nothing() {
        let mut markers = MarkerWait::new();
        assert_eq!(markers.wants(Instant::now()), Step::Go);
    }

    #[test]
    fn what_markers_take_is_learnt() {
        for takes in [2, 5, 12] {
            let mut markers = MarkerWait::new();
            let takes = takes * MS;
            let mut asked = 0;
            let mut waited = Duration::ZERO;
            for round in 0..200 {
                let (gone, questions) = wait(&mut markers, takes, MS / 2);
                assert!(gone >= takes.min(SURE));
                if round >= 100 {
                    asked += questions;
                    waited += gone;
                }
            }
            assert!(waited / 100 < takes + takes / 3 + MS, "{waited:?}");
            assert!(asked <= 250, "{asked} questions of 100 transactions");
        }
    }

    #[test]
    fn no_record_waits_for_ever() {
        let mut markers = MarkerWait::new();
        for _ in 0..100 {
            let (gone, asked) = wait(&mut markers, 10_000 * MS, MS / 2);
            assert!(gone <= SURE.max(3 * MOST) + MS);
            assert!(asked < 30, "{asked} questions");
        }
    }

    #[test]
    fn late_records_cause_no_request() {
        let mut markers = MarkerWait::new();
        let now = Instant::now();
        markers.ended(now);
        assert_eq!(markers.wants(now + SURE), Step::Go);
        assert_eq!(markers.wants(now), Step::Go);
    }

    #[test]
    fn a_missing_response_holds_no_record() {
        let mut markers = MarkerWait::new();
        let now = Instant::now();
        markers.ended(now);
        assert_eq!(markers.wants(now), Step::Wait(now + LEAST));
        assert_eq!(markers.wants(now + LEAST), Step::Ask);
        markers.asked();
        assert_eq!(markers.wants(now + LEAST), Step::Asked(now + SURE));
        assert_eq!(markers.wants(now + SURE), Step::Go);
    }

    #[test]
    fn a_coordinator_that_does_not_say_is_asked_once() {
        let mut markers = MarkerWait::new();
        let now = Instant::now();
        markers.ended(now);
        markers.asked();
        markers.silence();
        assert_eq!(markers.wants(now), Step::Go);
        markers.ended(now);
        assert_eq!(markers.wants(now), Step::Go);
    }

    #[test]
    fn an_answer_about_a_transaction_that_is_past_changes_nothing() {
        let mut markers = MarkerWait::new();
        markers.told(true, Instant::now());
        assert_eq!(markers.wants(Instant::now()), Step::Go);
    }
}
