//! The compression codecs of the batch format.

/// Compression codec of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// No compression.
    None,
    /// gzip, RFC 1952.
    Gzip,
    /// Snappy, raw (librdkafka) or framed as in xerial's Java library (Kafka's Java clients).
    Snappy,
    /// The LZ4 frame format.
    Lz4,
    /// Zstandard, RFC 8878.
    Zstd,
}

impl Codec {
    /// All codecs, in the order of their numbers in the protocol.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// Returns the codec's name in `compression.type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub(super) const fn from_bits(bits: i16) -> Option<Self> {
        Some(match bits {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            _ => return None,
        })
    }

    pub(super) const fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }
}
