//! The native plane of eomirror: lanes that relay record batches from a source into transactions on a target.
//!
//! The lanes use the Kafka client of `eomirror_kafka`.

#![forbid(unsafe_code)]

mod copied;
mod fix;
pub mod lane;
#[cfg(test)]
#[path = "../../kafka/tests/support/mod.rs"]
mod support;

pub use copied::copied;
pub use fix::fix_of;
