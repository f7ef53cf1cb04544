//! Compares source and target.

pub mod by_origin;
pub mod compacted;
pub mod compare;
pub mod log_digest;
