//! Errors of reading, re-encoding and writing record batches.

use std::io;

use thiserror::Error as ThisError;

use super::codec::Codec;

/// Reason that a batch's body cannot be produced unchanged under a new header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum Obstacle {
    /// Coordinators write markers; brokers reject them from producers.
    #[error("it is a control batch")]
    Control,
    /// Compaction has removed all records, so there is nothing to produce.
    #[error("it holds no records")]
    Empty,
    /// Compaction has removed some records. A broker rejects a batch whose offsets are not consecutive
    /// (`INVALID_RECORD`), and would store one whose header hides the gaps with wrong offsets.
    #[error("its offsets are not consecutive")]
    Gaps,
    /// Consumers see the log's append time, but the target's broker would show the records' own timestamps.
    #[error("its timestamps are log append times")]
    LogAppendTime,
}

/// A malformed batch, or one that cannot be written. `offset` is the base offset in the batch's header; the caller
/// knows the partition.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum BatchError {
    /// The batch is incomplete. This is normal at the end of a Fetch response: see [`super::Partial`].
    #[error("the batch is incomplete: {have} of {need} bytes")]
    Truncated {
        /// Number of bytes present.
        have: usize,
        /// Number of bytes needed, as far as the present bytes tell.
        need: usize,
    },

    /// Bytes follow a single batch.
    #[error("batch at offset {offset}: {bytes} bytes follow its end")]
    Trailing {
        /// Base offset of the batch.
        offset: i64,
        /// Number of bytes.
        bytes: usize,
    },

    /// A header field has an invalid value, or contradicts another field.
    #[error("batch at offset {offset}: {field} is {value}")]
    BadField {
        /// Base offset of the batch.
        offset: i64,
        /// Description of the field.
        field: &'static str,
        /// Value of the field.
        value: i64,
    },

    /// A message set of the format before Kafka 0.11.
    #[error(
        "batch at offset {offset}: message format {magic} of Kafka before 0.11, this release reads 2"
    )]
    OldMagic {
        /// Base offset of the message set.
        offset: i64,
        /// Format version, 0 or 1.
        magic: u8,
    },

    /// An unknown format version, or not a batch at all.
    #[error("batch at offset {offset}: message format {magic} is not known")]
    UnknownMagic {
        /// Base offset of the batch.
        offset: i64,
        /// Format version in the header.
        magic: u8,
    },

    /// An unknown compression codec.
    #[error("batch at offset {offset}: compression codec {codec} is not known")]
    UnknownCodec {
        /// Base offset of the batch.
        offset: i64,
        /// Codec number in the header.
        codec: u8,
    },

    /// The checksum does not match the bytes.
    #[error("batch at offset {offset}: checksum {computed:08x}, its header says {stored:08x}")]
    WrongCrc {
        /// Base offset of the batch.
        offset: i64,
        /// Checksum in the header.
        stored: u32,
        /// Checksum of the bytes.
        computed: u32,
    },

    /// The body cannot be decompressed.
    #[error("batch at offset {offset}: {} data is malformed: {reason}", codec.name())]
    BadCompression {
        /// Base offset of the batch.
        offset: i64,
        /// Codec of the batch.
        codec: Codec,
        /// Error message of the codec.
        reason: String,
    },

    /// The decompressed records would exceed the limits.
    #[error("batch at offset {offset}: more than {limit} bytes of records in {compressed} bytes of {}", codec.name())]
    TooLarge {
        /// Base offset of the batch.
        offset: i64,
        /// Codec of the batch.
        codec: Codec,
        /// Size of the compressed body in bytes.
        compressed: usize,
        /// Limit of [`super::Limits`] for a body of this size, in bytes.
        limit: usize,
    },

    /// A record does not fit its batch, or its fields do not fit the record.
    #[error("batch at offset {offset}, record {index}: {reason}")]
    BadRecord {
        /// Base offset of the batch.
        offset: i64,
        /// Index of the record in the batch, from 0.
        index: i32,
        /// The fault, as a clause whose subject is the record.
        reason: &'static str,
    },

    /// A control batch does not hold exactly one marker.
    #[error("control batch at offset {offset}: {reason}")]
    BadControl {
        /// Base offset of the batch.
        offset: i64,
        /// The fault, as a clause whose subject is the batch.
        reason: &'static str,
    },

    /// The offsets of a Fetch response's batches do not increase.
    #[error("batch at offset {offset}: it follows offset {last} in the same response")]
    OffsetWentBack {
        /// Base offset of the batch.
        offset: i64,
        /// Last offset of the previous batch.
        last: i64,
    },

    /// The batch must be re-encoded to be produced.
    #[error("batch at offset {offset} cannot be passed on unchanged: {obstacle}")]
    CannotPass {
        /// Base offset of the batch.
        offset: i64,
        /// Reason.
        obstacle: Obstacle,
    },

    /// The records do not fit the batch format.
    #[error("a batch cannot be written: {reason}")]
    Unwritable {
        /// Reason.
        reason: String,
    },
}

/// Reason that decompression failed.
pub(super) enum Fault {
    Malformed(String),
    TooLarge,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}
