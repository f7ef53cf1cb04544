//! The pure decisions of eomirror.
//!
//! # Contract
//!
//! * **Facts in, decision out.** No I/O, no clock, no threads, no randomness, no global state: equal calls with equal
//!   arguments give equal results, in any process, at any time.
//! * **No panic on any input.** Bytes from a broker or a state topic are decoded with full validation. Malformed input
//!   gives an [`Error`] with a fix.
//! * **Nothing is dropped silently.** Every record that enters [`client_plane::plan::plan`] is in the plan or counted
//!   under a [`DropReason`]. Otherwise the call fails and the [`Ledger`] is unchanged.
//! * **Records are borrowed** ([`RecordRef`]); keys and values are never copied except into a hash.
//!
//! The crate knows Kafka's terms (topic, partition, offset, leader epoch) but no Kafka client.

#![forbid(unsafe_code)]

pub mod arrow;
mod batch_fault;
pub mod client_plane;
pub mod digest;
mod digest_batch;
pub mod error;
pub mod header;
pub mod loop_guard;
pub mod offset_map;
pub mod origin;
pub mod pattern;
pub mod placement;
pub mod relay;
pub mod transform;
pub mod types;
mod varint;
pub mod verify;

pub use batch_fault::BatchFault;
pub use client_plane::ledger::{Ledger, PartitionAccount};
pub use client_plane::plan::{Planned, Policy};
pub use client_plane::skip::skip;
pub use digest_batch::digest_batch;
pub use error::{Error, Kind};
pub use pattern::PatternSet;
pub use types::{Acks, DropReason, HeaderRef, RecordRef, Written};
