//! The header `eomirror.origin`: the place on the source that a copy was read from, for consumers of an aggregate.
//!
//! ```text
//! ALIAS/TOPIC/PARTITION/OFFSET     shop1/orders/3/4711
//! ```
//!
//! Plain text, for programs that do not know eomirror. Neither aliases nor topic names contain a slash. A header of this
//! name that the source's record has is replaced, so the place is always the one on the link's own source.

use std::io::Write;

/// Name of the header.
pub const NAME: &str = "eomirror.origin";

/// Writes the header for records of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    prefix: String,
}

impl Origin {
    /// Returns the writer for records of `topic` on the cluster with this alias.
    #[must_use]
    pub fn new(alias: &str, topic: &str) -> Self {
        Self {
            prefix: format!("{alias}/{topic}/"),
        }
    }

    /// Writes the value of a record's header into `out`.
    pub fn write(&self, partition: i32, offset: i64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix.as_bytes());
        // writing into memory cannot fail
        let _ = write!(out, "{partition}/{offset}");
    }
}

#[cfg(test)]
mod tests {
    use super::Origin;

    #[test]
    fn the_place_is_plain_text() {
        let mut out = b"earlier".to_vec();
        Origin::new("shop1", "orders").write(3, i64::MAX, &mut out);
        assert_eq!(out, b"shop1/orders/3/9223372036854775807");
    }
}
