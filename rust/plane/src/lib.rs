//! The native plane of eomirror: lanes that relay record batches from a source into transactions on a target, and tasks
//! that write rows into a transaction.
//!
//! The lanes use the Kafka client of `eomirror_kafka`.

#![forbid(unsafe_code)]

mod copied;
mod fix;
pub mod lane;
pub mod rows;
pub mod state_log;
#[cfg(test)]
#[path = "../../kafka/tests/support/mod.rs"]
mod support;

pub use copied::copied;
pub use fix::fix_of;
