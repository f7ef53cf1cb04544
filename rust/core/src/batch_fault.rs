//! Gives errors of record batches a category and a fix.

use eomirror_batch::BatchError;

use crate::error::Kind;

/// Category and fix of an error of [`eomirror_batch`].
pub trait BatchFault {
    /// Returns the category: the topic cannot continue, or an argument of the writer is invalid.
    fn kind(&self) -> Kind;

    /// Returns the action that resolves the error, as an imperative.
    fn fix(&self) -> &'static str;
}

impl BatchFault for BatchError {
    fn kind(&self) -> Kind {
        match self {
            Self::CannotPass { .. } | Self::Unwritable { .. } => Kind::Argument,
            _ => Kind::Topic,
        }
    }

    fn fix(&self) -> &'static str {
        match self {
            Self::Truncated { .. } => "fetch again from this offset with a larger limit",
            Self::OldMagic { .. } => {
                "set `plane: auto` or `plane: client` on the link, or let the records of the old format expire"
            }
            Self::UnknownMagic { .. } | Self::UnknownCodec { .. } => {
                "check the log with kafka-dump-log.sh; if the log is intact, use a newer release of eomirror"
            }
            Self::WrongCrc { .. } => {
                "fetch again; if the same bytes come back, check the source broker's disk and network"
            }
            Self::TooLarge { .. } => {
                "use `plane: client` if the records are that large; a malicious batch has the same effect"
            }
            Self::Trailing { .. }
            | Self::BadField { .. }
            | Self::BadCompression { .. }
            | Self::BadRecord { .. }
            | Self::BadControl { .. }
            | Self::OffsetWentBack { .. } => {
                "check the log with kafka-dump-log.sh; if another client can read it, report a bug"
            }
            Self::CannotPass { .. } => "re-encode its records",
            Self::Unwritable { .. } => "write fewer or smaller records into one batch",
        }
    }
}
