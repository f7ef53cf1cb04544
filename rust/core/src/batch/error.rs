//! Why bytes are not a record batch, or cannot become one.

use std::io;

use thiserror::Error as ThisError;

use super::codec::Codec;
use crate::error::Kind;

/// What keeps a batch's body from being produced as it is, under a new header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
pub enum Obstacle {
    /// Markers are written by coordinators; a broker refuses them from producers.
    #[error("it is a control batch")]
    Control,
    /// Compaction has removed every record. There is nothing to produce.
    #[error("it holds no records")]
    Empty,
    /// Compaction has removed some records; a broker refuses a batch whose offsets are not consecutive
    /// (`INVALID_RECORD`), and one whose header pretends that they are would be stored with wrong offsets.
    #[error("its offsets are not consecutive")]
    Gaps,
    /// The records' own times are not those that consumers see, and the broker would show them.
    #[error("its timestamps are the log's append time")]
    LogAppendTime,
}

/// A refusal. `offset` is the base offset of the batch as its header has it; the caller knows the partition.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum BatchError {
    /// Fewer bytes than the batch says that it has. In a Fetch answer that is normal: see [`super::Partial`].
    #[error("the batch is cut: {have} bytes of {need}")]
    Truncated {
        /// Bytes that are there.
        have: usize,
        /// Bytes that are needed, as far as the bytes that are there tell.
        need: usize,
    },

    /// Bytes follow where one batch was expected.
    #[error("batch at offset {offset}: {bytes} bytes follow its end")]
    Trailing {
        /// Base offset.
        offset: i64,
        /// How many.
        bytes: usize,
    },

    /// A header field has a value that no batch can have, or that contradicts another field.
    #[error("batch at offset {offset}: {field} is {value}")]
    BadField {
        /// Base offset.
        offset: i64,
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },

    /// A message set of Kafka before 0.11.
    #[error(
        "batch at offset {offset}: message format {magic} of Kafka before 0.11, this release reads 2"
    )]
    OldMagic {
        /// Base offset.
        offset: i64,
        /// 0 or 1.
        magic: u8,
    },

    /// A format that nobody has defined yet, or no batch at all.
    #[error("batch at offset {offset}: message format {magic} is not known")]
    UnknownMagic {
        /// Base offset.
        offset: i64,
        /// The version that was found.
        magic: u8,
    },

    /// A compression codec that nobody has defined yet.
    #[error("batch at offset {offset}: compression codec {codec} is not known")]
    UnknownCodec {
        /// Base offset.
        offset: i64,
        /// The number that was found.
        codec: u8,
    },

    /// The checksum does not fit the bytes.
    #[error("batch at offset {offset}: checksum {computed:08x}, its header says {stored:08x}")]
    WrongCrc {
        /// Base offset.
        offset: i64,
        /// In the header.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },

    /// The body is not what its codec writes.
    #[error("batch at offset {offset}: {} data is malformed: {reason}", codec.name())]
    BadCompression {
        /// Base offset.
        offset: i64,
        /// The codec.
        codec: Codec,
        /// What the codec says.
        reason: String,
    },

    /// The records would take more memory than the limits allow.
    #[error("batch at offset {offset}: more than {limit} bytes of records in {compressed} bytes of {}", codec.name())]
    TooLarge {
        /// Base offset.
        offset: i64,
        /// The codec.
        codec: Codec,
        /// Size of the compressed body.
        compressed: usize,
        /// What [`super::Limits`] allows for a body of this size.
        limit: usize,
    },

    /// A record does not fit its batch, or its fields do not fit the record.
    #[error("batch at offset {offset}, record {index}: {reason}")]
    BadRecord {
        /// Base offset.
        offset: i64,
        /// The record's place in the batch, from 0.
        index: i32,
        /// What is wrong.
        reason: &'static str,
    },

    /// A control batch is not one marker.
    #[error("control batch at offset {offset}: {reason}")]
    BadControl {
        /// Base offset.
        offset: i64,
        /// What is wrong.
        reason: &'static str,
    },

    /// Batches of one Fetch answer must grow.
    #[error("batch at offset {offset}: it comes after offset {last} of the same answer")]
    OffsetWentBack {
        /// Base offset.
        offset: i64,
        /// Last offset of the batch before it.
        last: i64,
    },

    /// The batch must be re-encoded to be produced.
    #[error("batch at offset {offset} cannot be passed on as it is: {obstacle}")]
    CannotPass {
        /// Base offset.
        offset: i64,
        /// Why.
        obstacle: Obstacle,
    },

    /// What is to be written does not fit the format.
    #[error("a batch cannot be written: {reason}")]
    Unwritable {
        /// Why.
        reason: String,
    },
}

/// Why decompression stopped.
pub(super) enum Fault {
    Malformed(String),
    TooLarge,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl BatchError {
    /// What the error means for the caller: the topic cannot go on, or (for what we write ourselves) an argument
    /// is wrong.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::CannotPass { .. } | Self::Unwritable { .. } => Kind::Argument,
            _ => Kind::Topic,
        }
    }

    /// What to do about it, as an imperative.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "fetch again from this offset with a larger limit",
            Self::OldMagic { .. } => {
                "set `plane: auto` or `plane: client` on the link, or let the records of the old format expire"
            }
            Self::UnknownMagic { .. } | Self::UnknownCodec { .. } => {
                "check the log with kafka-dump-log.sh; if it is well, a newer release of eomirror is needed"
            }
            Self::WrongCrc { .. } => {
                "fetch again; if the same bytes come back, check the source broker's disk and network"
            }
            Self::TooLarge { .. } => {
                "use `plane: client` if the records are really that large; a hostile batch looks the same"
            }
            Self::Trailing { .. }
            | Self::BadField { .. }
            | Self::BadCompression { .. }
            | Self::BadRecord { .. }
            | Self::BadControl { .. }
            | Self::OffsetWentBack { .. } => {
                "check the log with kafka-dump-log.sh; if another client reads it, report this"
            }
            Self::CannotPass { .. } => "re-encode its records",
            Self::Unwritable { .. } => "write fewer or smaller records into one batch",
        }
    }
}
