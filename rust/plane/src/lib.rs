//! The native plane of eomirror: lanes that move record batches from a source into transactions on a target.
//!
//! The Kafka client that they work with is `eomirror_kafka`.

#![forbid(unsafe_code)]

pub mod lane;
#[cfg(test)]
#[path = "../../kafka/tests/support/mod.rs"]
mod support;
