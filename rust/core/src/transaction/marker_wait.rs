//! When the first records of a transaction may go: not before the markers of the one before are written.
//!
//! `EndTxn` is answered when the decision stands in the coordinator's log; the markers are written after that. Whoever
//! writes into the next transaction before they are there is not refused any more (KIP-890): the partition's leader
//! asks the coordinator again, but only after `add.partitions.to.txn.retry.backoff.ms`, 20 by default
//! (KAFKA-18654), and the markers take a few. A lane that commits one small transaction after the other waits for that
//! every time.
//!
//! So the coordinator is asked which state the transactional id is in (`DescribeTransactions`, KIP-664), when the markers
//! may be there, as learnt from the transactions before. It is asked whether records want to go or not: those that come
//! behind a short pause lose no time by it then.
//!
//! ```text
//! since the end            what happens, and what records do meanwhile
//! ----------------------   --------------------------------------------------------------------
//! less than usual          wait
//! about as long as usual   ask; while they are being written again, a quarter later each time
//! 20 ms or three times it  go: they are most likely there, and a leader that disagrees asks itself
//! ```
//!
//! Nothing depends on the answer but time: a coordinator that does not say leaves all as it was.

use std::time::{Duration, Instant};

/// What a producer begins with, and the least that it learns.
const LEAST: Duration = Duration::from_millis(1);
/// The most that it learns.
const MOST: Duration = Duration::from_millis(30);
/// Behind this, or three times the usual, nobody waits.
const SURE: Duration = Duration::from_millis(20);
/// At least so long between two questions.
const PAUSE: Duration = Duration::from_micros(700);

/// What records that want to go have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// They go.
    Go,
    /// They wait, until then at most; the coordinator is not asked before.
    Wait(Instant),
    /// They wait for what the coordinator says, until then at most.
    Asked(Instant),
    /// The coordinator is to be asked; see [`MarkerWait::asked`].
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Written,
    Writing {
        ended: Instant,
        next: Instant,
        asked: bool,
        /// The coordinator has said that they are being written.
        seen: bool,
    },
}

/// The markers of one producer's last transaction.
#[derive(Debug, Clone)]
pub struct MarkerWait {
    phase: Phase,
    usual: Duration,
    /// The coordinator does not tell this producer.
    silent: bool,
}

impl Default for MarkerWait {
    fn default() -> Self {
        Self::new()
    }
}

impl MarkerWait {
    /// Of a producer that has no transaction behind it.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::Written,
            usual: LEAST,
            silent: false,
        }
    }

    /// `EndTxn` was answered; the markers are being written.
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

    /// They are there, or nobody can tell: whatever wants to go may.
    pub const fn written(&mut self) {
        self.phase = Phase::Written;
    }

    /// What records have to do that want to go.
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

    /// The coordinator was asked.
    pub const fn asked(&mut self) {
        if let Phase::Writing { asked, .. } = &mut self.phase {
            *asked = true;
        }
    }

    /// It has answered: whether they are still being written.
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
            // somewhere between the last two questions
            (self.usual * 3 + since) / 4
        } else {
            // it may have been over for some time
            self.usual * 15 / 16
        }
        .clamp(LEAST, MOST);
        self.phase = Phase::Written;
    }

    /// It does not say, and never will.
    pub const fn silence(&mut self) {
        self.silent = true;
        self.written();
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, LEAST, MOST, MarkerWait, SURE, Step};

    const MS: Duration = Duration::from_millis(1);

    /// Asks until records may go; markers take `takes`. Gives when that was, and how often the coordinator was asked.
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
    fn nobody_waits_for_ever() {
        let mut markers = MarkerWait::new();
        for _ in 0..100 {
            let (gone, asked) = wait(&mut markers, 10_000 * MS, MS / 2);
            assert!(gone <= SURE.max(3 * MOST) + MS);
            assert!(asked < 30, "{asked} questions");
        }
    }

    #[test]
    fn records_that_come_late_ask_nobody() {
        let mut markers = MarkerWait::new();
        let now = Instant::now();
        markers.ended(now);
        assert_eq!(markers.wants(now + SURE), Step::Go);
        assert_eq!(markers.wants(now), Step::Go);
    }

    #[test]
    fn an_answer_that_does_not_come_holds_nobody() {
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
