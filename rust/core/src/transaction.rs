//! How batches get into a transaction: who the producer is, which batch goes when, and where each one landed.
//!
//! * [`coordinator`]: identity, commit and abort, as the transaction coordinator sees them (protocol V2, KIP-890).
//! * [`markers`]: when the first records of the next transaction may go;
//! * [`sequences`]: batches to partition leaders, in order, each of them exactly once.
//!
//! Both are state machines without I/O: facts and time in, requests out. Neither knows a wire format; error codes are
//! Kafka's numbers ([`code`]). The two meet in three places only, and the caller is where they meet: a transaction may
//! be committed when [`sequences::InFlight::is_settled`], an identity that changes restarts all sequences at 0, and a
//! batch that was refused leaves nothing to do but to abort.

pub mod code;
mod error_class;
pub mod in_flight;
pub mod marker_wait;
pub mod producer_state;

pub use in_flight::{Acknowledged, Answered, InFlight, Outgoing, Refused, SourceRange, Ticket};
pub use marker_wait::MarkerWait;
pub use producer_state::{Ask, Event, Identity, ProducerState};
