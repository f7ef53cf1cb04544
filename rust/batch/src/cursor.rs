//! Reads and writes the fields of a record: zigzag varints, and byte strings with a length that may mean null.
//!
//! Kafka's reader accepts overlong varints, and so does this one, up to the number of bytes of the type. It rejects
//! bits beyond the type, which Kafka drops. A reader of bytes that one writer
//! made may be stricter.

/// A position in a byte slice. Every method returns `None` if bytes are missing or malformed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns the remaining bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a fixed number of bytes, for big-endian integers.
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// Reads a signed 32-bit varint.
    pub(super) fn varint(&mut self) -> Option<i32> {
        // most lengths and deltas of a record take one byte
        if let Some((&byte, rest)) = self.rest.split_first() {
            if byte < 0x80 {
                self.rest = rest;
                let value = i32::from(byte);
                return Some((value >> 1) ^ -(value & 1));
            }
        }
        i32::try_from(unzigzag(self.unsigned(5)?)).ok()
    }

    /// Reads a signed 64-bit varint.
    pub(super) fn varlong(&mut self) -> Option<i64> {
        self.unsigned(10).map(unzigzag)
    }

    fn unsigned(&mut self, most: usize) -> Option<u64> {
        let mut value = 0_u64;
        for place in 0..most {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                return None;
            }
            value |= bits << (7 * place);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a byte string; length -1 is null, a smaller one is malformed.
    // malformed, null and present are three cases, which callers separate with `?`
    #[allow(clippy::option_option)]
    pub(super) fn field(&mut self) -> Option<Option<&'a [u8]>> {
        match self.varint()? {
            -1 => Some(None),
            length => Some(Some(self.bytes(usize::try_from(length).ok()?)?)),
        }
    }
}

fn unzigzag(value: u64) -> i64 {
    // both casts only reinterpret the bits: the shift has made room for the sign
    #[allow(clippy::cast_possible_wrap)]
    let (half, sign) = ((value >> 1) as i64, (value & 1) as i64);
    half ^ -sign
}

fn zigzag(value: i64) -> u64 {
    // the cast only reinterprets the bits
    #[allow(clippy::cast_sign_loss)]
    let zigzag = ((value << 1) ^ (value >> 63)) as u64;
    zigzag
}

/// Returns the number of bytes that [`put`] appends for `value`.
pub(super) fn size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a varint; 32-bit and 64-bit values have the same encoding.
pub(super) fn put(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, zigzag(value));
}

/// Appends an unsigned integer as LEB128, the form of a varint before its zigzag.
pub fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // the cast intentionally keeps the low seven bits
        #[allow(clippy::cast_possible_truncation)]
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    #[allow(clippy::cast_possible_truncation)]
    out.push(value as u8);
}

/// Returns the number of bytes that [`put_field`] appends; `None` if the field is too long for the format.
pub(super) fn field_size(field: Option<&[u8]>) -> Option<usize> {
    match field {
        None => Some(1),
        Some(bytes) => {
            let length = i32::try_from(bytes.len()).ok()?;
            size(i64::from(length)).checked_add(bytes.len())
        }
    }
}

/// Appends a byte string or null. [`field_size`] checks the length.
pub(super) fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put(out, -1),
        Some(bytes) => {
            put(out, i64::try_from(bytes.len()).unwrap_or(i64::MAX));
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cursor, field_size, put, put_field, size};
    use proptest::prelude::*;

    #[test]
    fn numbers_with_too_many_bits_or_too_few_bytes_are_refused() {
        for bytes in [
            &[][..],
            &[0x80],
            &[0xff, 0xff, 0xff, 0xff, 0x1f],
            &[0xff; 6],
        ] {
            assert_eq!(Cursor::new(bytes).varint(), None, "{bytes:?}");
        }
        assert_eq!(Cursor::new(&[0xff; 10]).varlong(), None);
        let too_high = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(Cursor::new(&too_high).varlong(), None);
        let highest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(Cursor::new(&highest).varlong(), Some(i64::MIN));
        assert_eq!(
            Cursor::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint(),
            Some(i32::MIN)
        );
    }

    #[test]
    fn a_length_below_minus_one_is_refused() {
        assert_eq!(Cursor::new(&[0x01]).field(), Some(None));
        assert_eq!(Cursor::new(&[0x00]).field(), Some(Some(&b""[..])));
        assert_eq!(Cursor::new(&[0x03]).field(), None);
        assert_eq!(
            Cursor::new(&[0x04, 0x61]).field(),
            None,
            "a byte is missing"
        );
    }

    proptest! {
        #[test]
        fn numbers_survive_a_round_trip(long: i64, short: i32) {
            let mut bytes = Vec::new();
            put(&mut bytes, long);
            prop_assert_eq!(bytes.len(), size(long));
            put(&mut bytes, i64::from(short));
            let mut cursor = Cursor::new(&bytes);
            prop_assert_eq!(cursor.varlong(), Some(long));
            prop_assert_eq!(cursor.varint(), Some(short));
            prop_assert_eq!(cursor.remaining(), 0);
        }

        #[test]
        fn fields_survive_a_round_trip(field in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200))) {
            let mut bytes = Vec::new();
            put_field(&mut bytes, field.as_deref());
            prop_assert_eq!(Some(bytes.len()), field_size(field.as_deref()));
            prop_assert_eq!(Cursor::new(&bytes).field(), Some(field.as_deref()));
        }
    }
}
