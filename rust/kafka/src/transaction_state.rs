//! Writes batches in transactions: the producer's identity, the order of batches, and their acknowledged offsets.
//!
//! * [`producer_state`]: identity, commit and abort, as seen by the transaction coordinator (protocols V1 and V2).
//! * [`marker_wait`]: delays the first records of a transaction until the previous transaction's markers are written.
//! * [`in_flight`]: sends batches to partition leaders, in order, each exactly once.
//!
//! All are state machines without I/O: they take facts and time, and return requests. None knows a wire format. The
//! caller connects them in three places. It commits a transaction when [`in_flight::InFlight::is_settled`]. It restarts all sequences at 0 when the identity changes. It aborts after a
//! rejected batch.

pub mod in_flight;
pub mod marker_wait;
pub mod producer_state;

pub use in_flight::{Acknowledged, Answered, InFlight, Outgoing, Refused, SourceRange, Ticket};
pub use marker_wait::MarkerWait;
pub use producer_state::{Ask, Event, Identity, ProducerState, Protocol};
