//! The producer and its transaction, as the coordinator sees them (transaction protocol V2, KIP-890 part 2).
//!
//! # What this rests on
//!
//! With `transaction.version` 2 every `EndTxn` gives the producer a new epoch (or, when epochs are used up, a new
//! producer id). So identity and transaction are one: a straggler of an old transaction, `Produce` or `EndTxn`, carries
//! an identity that no broker takes any more. A fact about one transaction can never be mistaken for one about another.
//!
//! # Unknown outcome
//!
//! An `EndTxn` whose answer was lost may have been carried out or not. The only thing to do is to send the *same*
//! one again, with the old identity, as often as it takes: the coordinator recognises it (51 while it writes markers,
//! then 0 with the identity that the first one made). Asking for the opposite in between would be wrong whatever comes
//! back, so [`ProducerState::abort`] is refused while a commit is unresolved. `INVALID_TXN_STATE` (48) to a commit is
//! definite: the coordinator has aborted, by its timeout, and a commit that arrives late will be refused as well.
//!
//! # Fencing
//!
//! 47 and 90 from the coordinator mean that somebody else has this transactional id: this producer is over. When a
//! commit was under way, its outcome is *not* known; what readers of committed records see is the truth. A producer that has
//! lost its identity by a timeout asks for a new one with the old one in hand (KIP-360), so that it is refused when it
//! was replaced, and never takes a transactional id back from its successor.
//!
//! # The table
//!
//! ```text
//! state          event                        next           tells
//! ------------   --------------------------   ------------   ----------------------------
//! Initializing   InitProducerId 0             Ready          Initialized
//! Ready          begin()                      Open
//! Open           commit(), nothing written    Ready          Committed, nobody is asked
//! Open           commit()                     Committing
//! Open           abort()                      Aborting
//! Open           require_abort()              AbortRequired
//! Committing     EndTxn 0                     Ready          Committed
//! Aborting       EndTxn 0                     Ready          Aborted
//! either         EndTxn 51, 14, lost, ...     the same       the same again, after a pause
//! Committing     EndTxn 120                   AbortRequired  MustAbort
//! Committing     EndTxn 48                    Initializing   NotCommitted
//! Aborting       EndTxn 48                    Initializing   Aborted
//! AbortRequired  abort()                      Aborting
//! any            47, 90                       Fatal          Fenced
//! any            everything else              Fatal          Refused
//! ```
//!
//! 15, 16 and a lost connection also forget which broker is the coordinator, in every state.

use std::time::{Duration, Instant};

use super::code;

/// The first pause before the same is asked again; it doubles up to [`LONGEST_PAUSE`]. Short, because the usual cause
/// is a coordinator that writes the markers of the last transaction, which takes about a millisecond.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Whom brokers take the producer for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Given by the coordinator.
    pub producer_id: i64,
    /// Of the producer id; a new one with every transaction.
    pub epoch: i16,
}

/// What to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `FindCoordinator`, of any broker.
    Find,
    /// `InitProducerId`, of the coordinator.
    Init {
        /// The identity that was lost; None for a producer that begins.
        previous: Option<Identity>,
    },
    /// `EndTxn`, of the coordinator.
    End {
        /// The identity of the transaction.
        identity: Identity,
        /// Commit or abort.
        commit: bool,
    },
}

/// What has become clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// There is an identity; a transaction can begin.
    Initialized,
    /// The transaction is committed.
    Committed,
    /// The transaction is aborted.
    Aborted,
    /// The transaction was not committed, and only an abort is left.
    MustAbort(i16),
    /// The transaction was not committed and is gone: the coordinator aborted it.
    NotCommitted(i16),
    /// Another producer has the transactional id. When a commit was under way, its outcome is not known.
    Fenced(i16),
    /// The coordinator will not serve this producer. When a commit was under way, its outcome is not known.
    Refused(i16),
}

/// A call that does not fit the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} does not fit: {state}")]
pub struct InvalidState {
    /// What was called.
    pub call: &'static str,
    /// Why it does not fit.
    pub state: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Initializing { previous: Option<Identity> },
    Ready(Identity),
    Open { identity: Identity, written: bool },
    AbortRequired(Identity),
    Committing(Identity),
    Aborting(Identity),
    Fatal,
}

/// The state machine; see the module.
#[derive(Debug)]
pub struct ProducerState {
    phase: Phase,
    broker: Option<i32>,
    asked: bool,
    pause: Duration,
    not_before: Option<Instant>,
}

impl Default for ProducerState {
    fn default() -> Self {
        Self::new()
    }
}

impl ProducerState {
    /// A producer that has no identity yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::Initializing { previous: None },
            broker: None,
            asked: false,
            pause: FIRST_PAUSE,
            not_before: None,
        }
    }

    /// The broker that is the coordinator, as far as known.
    #[must_use]
    pub const fn broker(&self) -> Option<i32> {
        self.broker
    }

    /// The identity under which batches may be written now; None outside of a transaction.
    #[must_use]
    pub const fn writer(&self) -> Option<Identity> {
        match self.phase {
            Phase::Open { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// The producer id, between transactions too; None while the coordinator has given none. With the end of a transaction
    /// it may become another one.
    #[must_use]
    pub const fn producer_id(&self) -> Option<i64> {
        match self.phase {
            Phase::Ready(identity)
            | Phase::Open { identity, .. }
            | Phase::AbortRequired(identity)
            | Phase::Committing(identity)
            | Phase::Aborting(identity) => Some(identity.producer_id),
            Phase::Initializing { .. } | Phase::Fatal => None,
        }
    }

    /// The identity that the next transaction will have; None when none can begin.
    #[must_use]
    pub const fn ready_identity(&self) -> Option<Identity> {
        match self.phase {
            Phase::Ready(identity) => Some(identity),
            _ => None,
        }
    }

    /// Whether a transaction is open or being ended.
    #[must_use]
    pub const fn in_transaction(&self) -> bool {
        matches!(
            self.phase,
            Phase::Open { .. }
                | Phase::AbortRequired(_)
                | Phase::Committing(_)
                | Phase::Aborting(_)
        )
    }

    /// Whether a commit was asked for and its outcome is not known yet.
    #[must_use]
    pub const fn is_committing(&self) -> bool {
        matches!(self.phase, Phase::Committing(_))
    }

    /// Whether a transaction is being ended.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Committing(_) | Phase::Aborting(_))
    }

    /// What to ask now; None when nothing is missing, an answer is outstanding, or a pause is on.
    #[must_use]
    pub fn wants(&self, now: Instant) -> Option<Ask> {
        if self.asked || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let ask = match self.phase {
            Phase::Initializing { previous } => Ask::Init { previous },
            Phase::Committing(identity) => Ask::End {
                identity,
                commit: true,
            },
            Phase::Aborting(identity) => Ask::End {
                identity,
                commit: false,
            },
            Phase::Ready(_) | Phase::Open { .. } | Phase::AbortRequired(_) | Phase::Fatal => {
                return None;
            }
        };
        Some(if self.broker.is_none() {
            Ask::Find
        } else {
            ask
        })
    }

    /// When a pause ends that keeps [`Self::wants`] from asking.
    #[must_use]
    pub fn paused_until(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.asked)
    }

    /// Notes that what [`Self::wants`] gave was sent.
    pub const fn asked(&mut self) {
        self.asked = true;
    }

    /// The request or its answer was lost, or the coordinator cannot be reached.
    pub fn lost(&mut self, now: Instant) {
        self.asked = false;
        self.broker = None;
        self.back_off(now);
    }

    /// The answer to [`Ask::Find`].
    pub fn found(&mut self, error: i16, broker: i32, now: Instant) -> Option<Event> {
        self.asked = false;
        match error {
            0 => {
                self.broker = Some(broker);
                None
            }
            _ if is_passing(error) => {
                self.back_off(now);
                None
            }
            _ => Some(self.fatal(Event::Refused(error))),
        }
    }

    /// The answer to [`Ask::Init`].
    pub fn initialized(&mut self, error: i16, identity: Identity, now: Instant) -> Option<Event> {
        self.asked = false;
        let Phase::Initializing { .. } = self.phase else {
            return None;
        };
        match error {
            0 if identity.producer_id >= 0 && identity.epoch >= 0 => {
                Some(self.ready(identity, Event::Initialized))
            }
            0 => Some(self.fatal(Event::Refused(code::INVALID_PRODUCER_ID_MAPPING))),
            _ => self.failed(error, now),
        }
    }

    /// The answer to [`Ask::End`]; `next` is the identity that it gives.
    pub fn ended(&mut self, error: i16, next: Identity, now: Instant) -> Option<Event> {
        self.asked = false;
        let (identity, commit) = match self.phase {
            Phase::Committing(identity) => (identity, true),
            Phase::Aborting(identity) => (identity, false),
            _ => return None,
        };
        match error {
            0 if follows(identity, next) => {
                let event = if commit {
                    Event::Committed
                } else {
                    Event::Aborted
                };
                Some(self.ready(next, event))
            }
            // said to be done, under an identity that no later batch could be told from an earlier one by
            0 => Some(self.fatal(Event::Refused(code::INVALID_PRODUCER_EPOCH))),
            code::TRANSACTION_ABORTABLE if commit => {
                self.phase = Phase::AbortRequired(identity);
                Some(Event::MustAbort(error))
            }
            code::INVALID_TXN_STATE => {
                self.phase = Phase::Initializing {
                    previous: Some(identity),
                };
                Some(if commit {
                    Event::NotCommitted(error)
                } else {
                    Event::Aborted
                })
            }
            _ => self.failed(error, now),
        }
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> Result<Identity, InvalidState> {
        match self.phase {
            Phase::Ready(identity) => {
                self.phase = Phase::Open {
                    identity,
                    written: false,
                };
                Ok(identity)
            }
            _ => Err(self.invalid("begin")),
        }
    }

    /// Notes that something is sent to a partition under this transaction's identity.
    pub const fn wrote(&mut self) {
        if let Phase::Open { identity, .. } = self.phase {
            self.phase = Phase::Open {
                identity,
                written: true,
            };
        }
    }

    /// Asks for a commit; everything that was sent must have been acknowledged. An empty transaction is committed at
    /// once: the coordinator does not know it and would answer 48.
    pub fn commit(&mut self) -> Result<Option<Event>, InvalidState> {
        match self.phase {
            Phase::Open {
                identity,
                written: false,
            } => {
                self.phase = Phase::Ready(identity);
                Ok(Some(Event::Committed))
            }
            Phase::Open { identity, .. } => {
                self.end(Phase::Committing(identity));
                Ok(None)
            }
            Phase::Committing(_) => Ok(None),
            _ => Err(self.invalid("commit")),
        }
    }

    /// Asks for an abort, of an empty transaction too: the new epoch makes void whatever may be on its way.
    pub fn abort(&mut self) -> Result<(), InvalidState> {
        match self.phase {
            Phase::Open { identity, .. } | Phase::AbortRequired(identity) => {
                self.end(Phase::Aborting(identity));
                Ok(())
            }
            Phase::Aborting(_) => Ok(()),
            _ => Err(self.invalid("abort")),
        }
    }

    /// What a leader refused makes this transaction impossible to commit.
    pub const fn require_abort(&mut self) {
        if let Phase::Open { identity, .. } = self.phase {
            self.phase = Phase::AbortRequired(identity);
        }
    }

    const fn end(&mut self, phase: Phase) {
        self.phase = phase;
        self.pause = FIRST_PAUSE;
        self.not_before = None;
    }

    const fn ready(&mut self, identity: Identity, event: Event) -> Event {
        self.phase = Phase::Ready(identity);
        self.pause = FIRST_PAUSE;
        self.not_before = None;
        event
    }

    const fn fatal(&mut self, event: Event) -> Event {
        self.phase = Phase::Fatal;
        event
    }

    fn failed(&mut self, error: i16, now: Instant) -> Option<Event> {
        match error {
            code::NOT_COORDINATOR | code::COORDINATOR_NOT_AVAILABLE => {
                self.lost(now);
                None
            }
            _ if is_passing(error) => {
                self.back_off(now);
                None
            }
            code::INVALID_PRODUCER_EPOCH | code::PRODUCER_FENCED => {
                Some(self.fatal(Event::Fenced(error)))
            }
            _ => Some(self.fatal(Event::Refused(error))),
        }
    }

    fn back_off(&mut self, now: Instant) {
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    const fn invalid(&self, call: &'static str) -> InvalidState {
        let state = match self.phase {
            Phase::Initializing { .. } => "the producer has no identity yet",
            Phase::Ready(_) => "no transaction is open",
            Phase::Open { .. } => "a transaction is open",
            Phase::AbortRequired(_) => "the transaction can only be aborted",
            Phase::Committing(_) => "a commit is under way and must be finished",
            Phase::Aborting(_) => "an abort is under way and must be finished",
            Phase::Fatal => "the producer was fenced or refused",
        };
        InvalidState { call, state }
    }
}

/// Whether the same request may get another answer soon.
const fn is_passing(error: i16) -> bool {
    matches!(
        error,
        code::REQUEST_TIMED_OUT
            | code::BROKER_NOT_AVAILABLE
            | code::NETWORK_EXCEPTION
            | code::COORDINATOR_LOAD_IN_PROGRESS
            | code::COORDINATOR_NOT_AVAILABLE
            | code::NOT_COORDINATOR
            | code::NOT_ENOUGH_REPLICAS
            | code::CONCURRENT_TRANSACTIONS
            | code::THROTTLING_QUOTA_EXCEEDED
    )
}

/// Whether an identity can be the one after another: the next epoch, or another producer id when epochs are used up.
fn follows(before: Identity, next: Identity) -> bool {
    if next.producer_id == before.producer_id {
        before.epoch.checked_add(1) == Some(next.epoch)
    } else {
        next.producer_id >= 0 && next.epoch >= 0
    }
}

#[cfg(test)]
mod tests;
