//! Layout of a batch header, and access to its fields.

/// Size of the header in bytes; the records follow it.
pub const HEADER_SIZE: usize = 61;
/// Version of the record batch format.
pub const MAGIC: u8 = 2;

/// Number of bytes that the length field does not count: base offset and the length itself.
pub(super) const LENGTH_BASE: usize = 12;
/// Start of the bytes that the checksum covers. A broker changes only fields before it when it appends a batch.
pub(super) const CRC_FROM: usize = 21;

/// Offsets of the header's fields.
pub(super) mod at {
    pub(crate) const BASE_OFFSET: usize = 0;
    pub(crate) const LENGTH: usize = 8;
    pub(crate) const LEADER_EPOCH: usize = 12;
    pub(crate) const MAGIC: usize = 16;
    pub(crate) const CRC: usize = 17;
    pub(crate) const ATTRIBUTES: usize = 21;
    pub(crate) const LAST_OFFSET_DELTA: usize = 23;
    pub(crate) const BASE_TIMESTAMP: usize = 27;
    pub(crate) const MAX_TIMESTAMP: usize = 35;
    pub(crate) const PRODUCER_ID: usize = 43;
    pub(crate) const PRODUCER_EPOCH: usize = 51;
    pub(crate) const BASE_SEQUENCE: usize = 53;
    pub(crate) const RECORD_COUNT: usize = 57;
}

/// Bits of the attributes field.
pub(super) mod bit {
    pub(crate) const CODEC: i16 = 0x07;
    pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
    pub(crate) const TRANSACTIONAL: i16 = 0x10;
    pub(crate) const CONTROL: i16 = 0x20;
    pub(crate) const DELETE_HORIZON: i16 = 0x40;
}

/// Returns `N` bytes of a header. Panics if they exceed the header, so `start` must be a constant of [`at`].
pub(super) fn array<const N: usize>(head: &[u8], start: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[start..start + N]);
    bytes
}

/// Writes a field. Panics if it exceeds the header, so `start` must be a constant of [`at`].
pub(super) fn put<const N: usize>(head: &mut [u8; HEADER_SIZE], start: usize, bytes: [u8; N]) {
    head[start..start + N].copy_from_slice(&bytes);
}
