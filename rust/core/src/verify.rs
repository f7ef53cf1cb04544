//! Compares source and target, and audits the state that a link keeps on the target.

pub mod audit;
pub mod by_origin;
pub mod compacted;
pub mod compare;
pub mod log_digest;
