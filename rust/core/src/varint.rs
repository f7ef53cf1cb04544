//! Unsigned LEB128 integers, as in Kafka's record format, and a reader that cannot exceed its input.
//!
//! Zigzag encoding is not used: every stored number is a count, a length, or the distance to a larger number, so a
//! negative one would be an error in any case.

pub(crate) use eomirror_batch::put_unsigned as put;

/// Reads fields from the front of a byte slice; every method returns `None` if bytes are missing or malformed.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a number in its shortest form: one value has one encoding, so equal chunks are equal bytes.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let overlong = byte == 0 && shift > 0;
                return (!overlong).then_some(value);
            }
        }
        None
    }

    /// Reads a length-prefixed UTF-8 string of at most `limit` bytes.
    pub(crate) fn text(&mut self, limit: usize) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        if length > limit {
            return None;
        }
        std::str::from_utf8(self.bytes(length)?).ok()
    }
}

/// Appends a length-prefixed string.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::{Reader, put};
    use proptest::prelude::*;

    #[test]
    fn overlong_and_overflowing_numbers_are_refused() {
        for bytes in [
            &[0x80, 0x00][..],
            &[0x80],
            &[],
            &[0xff; 10],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02],
        ] {
            assert_eq!(Reader::new(bytes).number(), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn numbers_survive_a_round_trip(value: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.number(), Some(value));
            prop_assert_eq!(reader.remaining(), 0);
        }
    }
}
