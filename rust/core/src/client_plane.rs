//! Decisions of the client plane, which moves records through librdkafka.

pub mod ledger;
pub mod plan;
pub mod route;
pub mod skip;
