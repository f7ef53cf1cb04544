//! State of the producer and its transaction, as seen by the coordinator (transaction protocols V1, KIP-98 and KIP-360,
//! and V2, KIP-890 part 2).
//!
//! # Basis
//!
//! With `transaction.version` 2 every `EndTxn` gives the producer a new epoch, or a new producer id when epochs are
//! used up. So each transaction has its own identity. A late `Produce` or `EndTxn` of an old transaction carries an
//! identity that every broker rejects, and a response about one transaction cannot be mistaken for one about another.
//!
//! In V1 the end leaves the identity as it is, and a late copy of an `EndTxn` would end the next transaction. So the
//! producer asks for a new epoch after each end, with the old identity (KIP-360), and each transaction has its own identity
//! here as well. Sequences begin at 0 with it. That is one request more for each transaction, which also waits until
//! the markers are written. A transaction of V1 has the partitions that were added to it by request:
//! batches wait for that.
//!
//! # Unknown outcome
//!
//! An `EndTxn` whose response was lost may or may not have been executed. The producer sends the *same* request again,
//! with the old identity, until it is answered. The coordinator recognises it: it returns 51 while it writes markers,
//! then 0 with the identity that the first request created. Requesting the opposite in between would be wrong for every
//! outcome, so [`ProducerState::abort`] is rejected while a commit is unresolved. `INVALID_TXN_STATE` (48) for a commit
//! is definite: the coordinator has aborted after its timeout, and rejects a late commit as well.
//!
//! `UNKNOWN_SERVER_ERROR` (-1) says as little: the coordinator has failed at some step. One of Kafka 4.3 does so when an
//! `EndTxn` arrives between two steps of the fence of its producer (an `IllegalStateException`, `PREPARE_EPOCH_FENCE`);
//! to the same request it then says that the producer is fenced.
//!
//! # Fencing
//!
//! 47 and 90 from the coordinator mean that another producer has this transactional id: this producer is fenced. If a
//! commit was in progress, its outcome is *unknown* until the committed records are read. A producer that lost its
//! identity in a timeout requests a new one with the old one (KIP-360). If it was replaced, the request is rejected, so
//! it never takes the transactional id back from its successor.
//!
//! # Change of the protocol
//!
//! A cluster's `transaction.version` is raised and lowered while transactions run, and brokers of level 2 serve both
//! protocols. So the protocol changes between two transactions ([`ProducerState::change_protocol`]): the identity that
//! the end of the last one gave, in whichever protocol, was in no transaction yet.
//!
//! # Transitions
//!
//! ```text
//! state          event                        next           result
//! ------------   --------------------------   ------------   ----------------------------
//! Initializing   InitProducerId 0             Ready          Initialized
//! Ready          change_protocol()            Ready
//! Ready          begin()                      Open
//! Open           commit(), nothing written    Ready          Committed, without a request
//! Open           commit()                     Committing
//! Open           abort()                      Aborting
//! Open           require_abort()              AbortRequired
//! Open           Add 0, 3, 51, 55             unchanged      V1 only; all but 0: again, after a backoff
//! Open           Add, any other error         AbortRequired  MustAbort
//! Committing     EndTxn 0                     Ready          Committed; in V1 Initializing
//! Aborting       EndTxn 0                     Ready          Aborted; in V1 Initializing
//! either         EndTxn 51, 14, -1, lost, ... unchanged      the same request, after a backoff
//! Committing     EndTxn 120                   AbortRequired  MustAbort
//! Committing     EndTxn 48                    Initializing   NotCommitted
//! Aborting       EndTxn 48                    Initializing   Aborted
//! AbortRequired  abort()                      Aborting
//! any            47, 90                       Fatal          Fenced
//! any            any other error              Fatal          Refused
//! ```
//!
//! In every state, 15, 16 and a lost connection also discard the known coordinator.

use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;

/// First backoff; it doubles up to [`LONGEST_PAUSE`]. It is short because the usual cause is a coordinator that writes
/// the markers of the last transaction, which takes about a millisecond.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Transaction protocol between producer, coordinator and leaders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// Partitions are added by request, and the end of a transaction keeps the identity (KIP-98).
    V1,
    /// Leaders add partitions, and the end of a transaction gives a new identity (KIP-890).
    #[default]
    V2,
}

impl Protocol {
    /// Returns the protocol of a cluster with this level of `transaction.version`.
    #[must_use]
    pub const fn of(level: i16) -> Self {
        if level >= 2 { Self::V2 } else { Self::V1 }
    }

    /// Returns the name of the protocol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "V1",
            Self::V2 => "V2",
        }
    }
}

/// Producer id and epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Producer id, assigned by the coordinator.
    pub producer_id: i64,
    /// Epoch of the producer id; every transaction has a new one.
    pub epoch: i16,
}

/// Request to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// `FindCoordinator`, to any broker.
    Find,
    /// `InitProducerId`, to the coordinator.
    Init {
        /// The lost identity; `None` for a new producer.
        previous: Option<Identity>,
    },
    /// `AddPartitionsToTxn`, to the coordinator.
    Add {
        /// Identity of the transaction.
        identity: Identity,
    },
    /// `EndTxn`, to the coordinator.
    End {
        /// Identity of the transaction.
        identity: Identity,
        /// True to commit, false to abort.
        commit: bool,
    },
}

/// Result of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The producer has an identity; a transaction can begin.
    Initialized,
    /// The transaction is committed.
    Committed,
    /// The transaction is aborted.
    Aborted,
    /// The transaction was not committed and must be aborted.
    MustAbort(ErrorCode),
    /// The transaction was not committed: the coordinator has aborted it.
    NotCommitted(ErrorCode),
    /// Another producer has the transactional id. If a commit was in progress, its outcome is unknown.
    Fenced(ErrorCode),
    /// The coordinator rejects this producer. If a commit was in progress, its outcome is unknown.
    Refused(ErrorCode),
}

/// A call that is invalid in the current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{call} is invalid: {state}")]
pub struct InvalidState {
    /// Name of the call.
    pub call: &'static str,
    /// Description of the state.
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

/// State machine of the producer; see the module.
#[derive(Debug)]
pub struct ProducerState {
    protocol: Protocol,
    phase: Phase,
    /// Batches wait for partitions that the transaction does not have.
    adding: bool,
    broker: Option<i32>,
    asked: bool,
    pause: Duration,
    not_before: Option<Instant>,
}

impl Default for ProducerState {
    fn default() -> Self {
        Self::new(Protocol::V2)
    }
}

impl ProducerState {
    /// Returns the state of a producer without an identity.
    #[must_use]
    pub const fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            phase: Phase::Initializing { previous: None },
            adding: false,
            broker: None,
            asked: false,
            pause: FIRST_PAUSE,
            not_before: None,
        }
    }

    /// Returns the state of a producer that writes into a transaction of protocol V2 which another process has begun,
    /// and which that process ends.
    #[must_use]
    pub const fn joined(identity: Identity) -> Self {
        let phase = Phase::Open {
            identity,
            written: true,
        };
        Self {
            phase,
            ..Self::new(Protocol::V2)
        }
    }

    /// Returns the protocol of its transactions.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Sets the protocol of the next transactions, between two of them: each has an identity of its own in both.
    /// Changes nothing at any other time.
    pub const fn change_protocol(&mut self, protocol: Protocol) {
        if let Phase::Ready(_) = self.phase {
            self.protocol = protocol;
        }
    }

    /// Returns the coordinator's broker id, if known.
    #[must_use]
    pub const fn broker(&self) -> Option<i32> {
        self.broker
    }

    /// Returns the identity for batches of the open transaction; `None` outside of a transaction.
    #[must_use]
    pub const fn writer(&self) -> Option<Identity> {
        match self.phase {
            Phase::Open { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// Returns the producer id, also between transactions; `None` until the coordinator assigns one. The end of a
    /// transaction may change it.
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

    /// Returns the identity of the next transaction; `None` if none can begin.
    #[must_use]
    pub const fn ready_identity(&self) -> Option<Identity> {
        match self.phase {
            Phase::Ready(identity) => Some(identity),
            _ => None,
        }
    }

    /// Returns true if a transaction is open or being ended.
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

    /// Returns true if a commit was requested and its outcome is unknown.
    #[must_use]
    pub const fn is_committing(&self) -> bool {
        matches!(self.phase, Phase::Committing(_))
    }

    /// Returns true if a transaction is being ended.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Committing(_) | Phase::Aborting(_))
    }

    /// Returns the request to send now; `None` if none is needed, one is in flight, or a backoff is active.
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
            Phase::Open { identity, .. } if self.adding => Ask::Add { identity },
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

    /// Returns the end of the backoff that keeps [`Self::wants`] from returning a request.
    #[must_use]
    pub fn paused_until(&self) -> Option<Instant> {
        self.not_before.filter(|_| !self.asked)
    }

    /// Records that the request of [`Self::wants`] was sent.
    pub const fn asked(&mut self) {
        self.asked = true;
    }

    /// Records that the request or its response was lost, or that the coordinator cannot be reached.
    pub fn lost(&mut self, now: Instant) {
        self.asked = false;
        self.broker = None;
        self.back_off(now);
    }

    /// Takes the response to [`Ask::Find`].
    pub fn found(&mut self, error: ErrorCode, broker: i32, now: Instant) -> Option<Event> {
        self.asked = false;
        match error {
            ErrorCode::NONE => {
                self.broker = Some(broker);
                None
            }
            _ if error.is_passing_for_coordinator() => {
                self.back_off(now);
                None
            }
            _ => Some(self.fatal(Event::Refused(error))),
        }
    }

    /// Takes the response to [`Ask::Init`].
    pub fn initialized(
        &mut self,
        error: ErrorCode,
        identity: Identity,
        now: Instant,
    ) -> Option<Event> {
        self.asked = false;
        let Phase::Initializing { .. } = self.phase else {
            return None;
        };
        match error {
            ErrorCode::NONE if identity.producer_id >= 0 && identity.epoch >= 0 => {
                Some(self.ready(identity, Event::Initialized))
            }
            ErrorCode::NONE => {
                Some(self.fatal(Event::Refused(ErrorCode::INVALID_PRODUCER_ID_MAPPING)))
            }
            _ => self.failed(error, now),
        }
    }

    /// Sets whether batches wait for partitions that the transaction does not have; only in V1.
    pub const fn add(&mut self, adding: bool) {
        self.adding = adding;
    }

    /// Takes the response to [`Ask::Add`]: the error of one partition, or none if all were added.
    pub fn added(&mut self, error: ErrorCode, now: Instant) -> Option<Event> {
        self.asked = false;
        let Phase::Open { identity, .. } = self.phase else {
            return None;
        };
        match error {
            ErrorCode::NONE => {
                self.pause = FIRST_PAUSE;
                self.not_before = None;
                None
            }
            // the coordinator has not heard of the topic yet, or another partition was refused
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::OPERATION_NOT_ATTEMPTED => {
                self.back_off(now);
                None
            }
            _ => {
                let event = self.failed(error, now);
                if let Some(Event::Refused(code)) = event {
                    self.phase = Phase::AbortRequired(identity);
                    return Some(Event::MustAbort(code));
                }
                event
            }
        }
    }

    /// Takes the response to [`Ask::End`]; `next` is the identity in it, which V1 does not have.
    pub fn ended(&mut self, error: ErrorCode, next: Identity, now: Instant) -> Option<Event> {
        self.asked = false;
        let (identity, commit) = match self.phase {
            Phase::Committing(identity) => (identity, true),
            Phase::Aborting(identity) => (identity, false),
            _ => return None,
        };
        let event = if commit {
            Event::Committed
        } else {
            Event::Aborted
        };
        match error {
            ErrorCode::NONE if self.protocol == Protocol::V1 => {
                self.end(Phase::Initializing {
                    previous: Some(identity),
                });
                Some(event)
            }
            ErrorCode::NONE if follows(identity, next) => Some(self.ready(next, event)),
            // reported as done, under an identity that does not separate later batches from earlier ones
            ErrorCode::NONE => Some(self.fatal(Event::Refused(ErrorCode::INVALID_PRODUCER_EPOCH))),
            ErrorCode::TRANSACTION_ABORTABLE if commit => {
                self.phase = Phase::AbortRequired(identity);
                Some(Event::MustAbort(error))
            }
            ErrorCode::INVALID_TXN_STATE => {
                self.phase = Phase::Initializing {
                    previous: Some(identity),
                };
                Some(if commit {
                    Event::NotCommitted(error)
                } else {
                    Event::Aborted
                })
            }
            ErrorCode::UNKNOWN_SERVER_ERROR => {
                self.back_off(now);
                None
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

    /// Records that data is sent to a partition under this transaction's identity.
    pub const fn wrote(&mut self) {
        if let Phase::Open { identity, .. } = self.phase {
            self.phase = Phase::Open {
                identity,
                written: true,
            };
        }
    }

    /// Requests a commit; all batches must have been acknowledged. An empty transaction is committed without a request:
    /// the coordinator does not know it and would return 48.
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

    /// Requests an abort, also of an empty transaction: the new epoch invalidates all requests in flight.
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

    /// Requires an abort of the open transaction, because a leader rejected a batch.
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

    fn failed(&mut self, error: ErrorCode, now: Instant) -> Option<Event> {
        match error {
            ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE => {
                self.lost(now);
                None
            }
            _ if error.is_passing_for_coordinator() => {
                self.back_off(now);
                None
            }
            ErrorCode::INVALID_PRODUCER_EPOCH | ErrorCode::PRODUCER_FENCED => {
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
            Phase::Committing(_) => "a commit is in progress and must be finished",
            Phase::Aborting(_) => "an abort is in progress and must be finished",
            Phase::Fatal => "the producer was fenced or refused",
        };
        InvalidState { call, state }
    }
}

/// Returns true if `next` is a valid successor: the next epoch, or another producer id when epochs are used up.
fn follows(before: Identity, next: Identity) -> bool {
    if next.producer_id == before.producer_id {
        before.epoch.checked_add(1) == Some(next.epoch)
    } else {
        next.producer_id >= 0 && next.epoch >= 0
    }
}

#[cfg(test)]
mod tests;
