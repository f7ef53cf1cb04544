//! Checksums of batches: computed once over the records, and updated when a header changes.
//!
//! CRC-32C is linear. If two batches of equal length differ only in a few header bytes, their checksums differ by the
//! remainder of that difference, shifted by the number of bytes after it. The value of those bytes does not matter:
//! [`carry`] needs the old checksum and both headers, but not the records. This is cheaper than reading the records
//! again. It is also safer: a recomputed checksum covers the bytes as they are in memory at that time, while an updated
//! checksum still covers the bytes that the source's producer wrote. If a bit of the records changes between source and
//! target, the target's broker rejects the batch (`CORRUPT_MESSAGE`).
//!
//! Polynomials over GF(2) are stored in 32 bits with the constant term in the highest bit, as in the checksum.

use super::bytes::{CRC_FROM, HEADER_SIZE, LENGTH_BASE, at, put};

/// Castagnoli's polynomial without its highest term (RFC 3720, 12.1), in the bit order described above.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1.
const ONE: u32 = 1 << 31;
/// Shift by 2^k bytes: x to the power of 8 times 2^k. A batch has fewer than 2^32 bytes.
const MOVES: [u32; 32] = moves();

/// Writes the checksum of a complete header and `body`.
pub(super) fn seal(head: &mut [u8; HEADER_SIZE], body: &[u8]) {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[CRC_FROM..]), body);
    put(head, at::CRC, crc.to_be_bytes());
}

/// Writes the checksum of a complete header that belongs to the same records as `before`, a sealed header. The result
/// is wrong if and only if the checksum of `before` is wrong.
pub(super) fn carry(before: &[u8; HEADER_SIZE], head: &mut [u8; HEADER_SIZE]) {
    let mut change = [0; HEADER_SIZE - CRC_FROM];
    for (place, byte) in change.iter_mut().enumerate() {
        *byte = before[CRC_FROM + place] ^ head[CRC_FROM + place];
    }
    let crc = crc_of(before) ^ moved(remainder(&change), body_size(head));
    put(head, at::CRC, crc.to_be_bytes());
}

fn crc_of(head: &[u8; HEADER_SIZE]) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at::CRC..at::CRC + 4]);
    u32::from_be_bytes(bytes)
}

/// Returns the number of record bytes according to the length field; 0 if the field is smaller than a header.
fn body_size(head: &[u8; HEADER_SIZE]) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&head[at::LENGTH..at::LENGTH + 4]);
    let size = i64::from(i32::from_be_bytes(bytes));
    // both constants are below 100
    let rest = size + i64::try_from(LENGTH_BASE).unwrap_or(0);
    let rest = rest - i64::try_from(HEADER_SIZE).unwrap_or(0);
    u32::try_from(rest).unwrap_or(0)
}

/// Returns the remainder of `bytes` alone: the checksum without its initial and final inversion.
fn remainder(bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(u32::MAX, bytes)
}

/// Returns `remainder` after appending `bytes` zeros to the input it was computed from.
fn moved(mut remainder: u32, mut bytes: u32) -> u32 {
    let mut power = 0;
    while bytes != 0 && remainder != 0 {
        if bytes & 1 == 1 {
            remainder = product(remainder, MOVES[power]);
        }
        bytes >>= 1;
        power += 1;
    }
    remainder
}

/// Returns the product of two polynomials, modulo Castagnoli's.
const fn product(factor: u32, other: u32) -> u32 {
    let (mut sum, mut shifted, mut term) = (0, other, ONE);
    while term != 0 {
        if factor & term != 0 {
            sum ^= shifted;
        }
        shifted = times_x(shifted);
        term >>= 1;
    }
    sum
}

const fn times_x(polynomial: u32) -> u32 {
    let rest = polynomial >> 1;
    if polynomial & 1 == 1 {
        rest ^ POLYNOMIAL
    } else {
        rest
    }
}

const fn moves() -> [u32; 32] {
    let mut all = [0; 32];
    // x to the power of 8
    let mut power = ONE >> 8;
    let mut k = 0;
    while k < all.len() {
        all[k] = power;
        power = product(power, power);
        k += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::{HEADER_SIZE, LENGTH_BASE, at, carry, crc_of, moved, put, remainder, seal};

    #[test]
    fn zeros_behind_a_remainder_move_it() {
        let all = vec![0; (1 << 20) + 3];
        for zeros in [
            0,
            1,
            2,
            7,
            8,
            255,
            256,
            257,
            4096,
            65_535,
            1 << 20,
            (1 << 20) + 3,
        ] {
            let mut bytes = b"change".to_vec();
            bytes.extend_from_slice(&all[..zeros]);
            let by_arithmetic = moved(remainder(b"change"), u32::try_from(zeros).unwrap());
            assert_eq!(by_arithmetic, remainder(&bytes), "{zeros} zeros");
        }
    }

    #[test]
    fn moving_twice_is_moving_by_the_sum_up_to_the_largest_batch() {
        let start = remainder(b"x");
        for (first, second) in [(1, 2), (0x7fff_0000, 0xffff), (0x5555_5555, 0x2aaa_aaaa)] {
            assert_eq!(
                moved(moved(start, first), second),
                moved(start, first + second)
            );
        }
    }

    #[test]
    fn a_header_without_room_for_itself_has_no_body() {
        for length in [i32::MIN, -1, 0, 48, 49] {
            let mut head = [7; HEADER_SIZE];
            put(&mut head, at::LENGTH, length.to_be_bytes());
            seal(&mut head, b"");
            let before = head;
            head[at::PRODUCER_ID] ^= 0xff;
            carry(&before, &mut head);
            let carried = crc_of(&head);
            seal(&mut head, b"");
            assert_eq!(carried, crc_of(&head), "{length}");
        }
        assert_eq!(HEADER_SIZE - LENGTH_BASE, 49);
    }
}
