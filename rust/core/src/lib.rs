//! The pure decisions of eomirror.
//!
//! # Contract
//!
//! * **Facts in, decision out.** No I/O, no clock, no threads, no randomness, no global state: the same calls with
//!   the same arguments give the same answers, in any process, at any time.
//! * **No panic on any input.** Bytes that came from a broker or from a state topic are decoded with full
//!   validation; what does not fit is an [`Error`] that says what to do next.
//! * **Nothing is dropped silently.** Every record that enters [`client_plane::plan::plan`] is either in the plan, counted under a
//!   [`DropReason`], or the whole call is an error and the [`Ledger`] is as it was before.
//! * **The caller's bytes stay the caller's.** Records are borrowed ([`RecordRef`]); keys and values are never copied
//!   except into a hash.
//!
//! The crate knows Kafka's words (topic, partition, offset, leader epoch) and none of its clients.

#![forbid(unsafe_code)]

pub mod batch;
pub mod client_plane;
pub mod digest;
pub mod error;
pub mod fetch_session;
pub mod header;
pub mod loop_guard;
pub mod offset_map;
pub mod pattern;
pub mod relay;
pub mod transaction;
pub mod types;
mod varint;
pub mod verify;

pub use client_plane::ledger::{Ledger, PartitionAccount};
pub use client_plane::plan::{Planned, Policy};
pub use client_plane::skip::skip;
pub use error::{Error, Kind};
pub use pattern::PatternSet;
pub use types::{Acks, DropReason, HeaderRef, RecordRef, Written};
