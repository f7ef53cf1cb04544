//! Compression and decompression of a batch's records, with limits on the decompressed size.

use std::fmt;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use zstd_safe::{CCtx, DCtx};

use super::codec::Codec;
use super::error::{BatchError, Fault};
use super::view::Batch;
use super::{xerial, zstd_bound};

/// The default level of zstd, and of Kafka.
const ZSTD_LEVEL: i32 = 3;
/// A larger buffer is freed before the next batch, so one huge batch does not stay in memory.
const KEEP: usize = 16 * 1024 * 1024;

/// Limits on the size of a batch's decompressed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bytes, whatever the ratio.
    pub bytes: usize,
    /// Maximum number of bytes per compressed byte. Repetitive records compress 50-fold in practice, and large
    /// identical ones some thousandfold with zstd. gzip's maximum is 1032, that of zstd's format about 30,000.
    pub ratio: usize,
    /// The ratio is not checked up to this many bytes: a small batch of zeros is not an attack.
    pub unchecked: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 256 * 1024 * 1024,
            // a ratio within a codec's range does not indicate an attack, and `bytes` limits the largest batches in any
            // case
            ratio: 32 * 1024,
            unchecked: 8 * 1024 * 1024,
        }
    }
}

impl Limits {
    /// Returns the maximum decompressed size of a body of `compressed` bytes.
    #[must_use]
    pub fn for_body(&self, compressed: usize) -> usize {
        compressed
            .saturating_mul(self.ratio)
            .max(self.unchecked)
            .min(self.bytes)
    }
}

/// Buffers and codec contexts that a thread reuses for all batches.
#[derive(Default)]
pub struct Memory {
    plain: Vec<u8>,
    /// Creating a context costs more than decompressing a small batch.
    zstd: Option<DCtx<'static>>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("capacity", &self.plain.capacity())
            .finish_non_exhaustive()
    }
}

impl Memory {
    pub(super) fn decompress(
        &mut self,
        codec: Codec,
        batch: &Batch<'_>,
        limits: Limits,
    ) -> Result<&[u8], BatchError> {
        let body = batch.body();
        let limit = limits.for_body(body.len());
        if self.plain.capacity() > KEEP {
            self.plain = Vec::new();
        }
        self.plain.clear();
        let outcome = match codec {
            Codec::None => {
                self.plain.extend_from_slice(body);
                Ok(())
            }
            Codec::Gzip => read_all(MultiGzDecoder::new(body), limit, &mut self.plain),
            Codec::Snappy => xerial::decompress(body, limit, &mut self.plain),
            // allocates one block; the frame format has no block size above 8 MiB
            Codec::Lz4 => read_all(FrameDecoder::new(body), limit, &mut self.plain),
            Codec::Zstd => self.unzstd(body, limit),
        };
        match outcome {
            Ok(()) => Ok(&self.plain),
            Err(Fault::Malformed(reason)) => Err(BatchError::BadCompression {
                offset: batch.base_offset(),
                codec,
                reason,
            }),
            Err(Fault::TooLarge) => Err(BatchError::TooLarge {
                offset: batch.base_offset(),
                codec,
                compressed: body.len(),
                limit,
            }),
        }
    }

    /// Decompresses in one call, into a sufficiently large buffer. The streaming interface would allocate the frame's
    /// window, whose size is set by the sender (Kafka's clients write 128 MiB at level 22, for batches of any size).
    fn unzstd(&mut self, body: &[u8], limit: usize) -> Result<(), Fault> {
        let most = zstd_bound::most_bytes(body)
            .ok_or_else(|| Fault::Malformed("no complete zstd frame".to_owned()))?;
        let context = match &mut self.zstd {
            Some(context) => context,
            empty => empty.insert(DCtx::try_create().ok_or_else(no_memory)?),
        };
        self.plain.reserve(most.min(limit));
        match context.decompress(&mut self.plain, body) {
            // the buffer's existing capacity may exceed the limit
            Ok(size) if size > limit => Err(Fault::TooLarge),
            Ok(_) => Ok(()),
            Err(_) if most > self.plain.capacity() => Err(Fault::TooLarge),
            Err(code) => Err(Fault::Malformed(zstd_safe::get_error_name(code).to_owned())),
        }
    }
}

fn no_memory() -> Fault {
    Fault::Malformed("no memory for a zstd context".to_owned())
}

fn read_all(reader: impl Read, limit: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(most).read_to_end(out)?;
    if out.len() > limit {
        return Err(Fault::TooLarge);
    }
    Ok(())
}

/// Compresses batches; keeps contexts and buffers between them.
#[derive(Default)]
pub(super) struct Compressor {
    packed: Vec<u8>,
    zstd: Option<CCtx<'static>>,
}

impl Compressor {
    /// Appends `plain` to `out`, compressed the way Kafka's clients do.
    pub(super) fn compress(
        &mut self,
        codec: Codec,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match codec {
            Codec::None => out.extend_from_slice(plain),
            Codec::Gzip => {
                let mut encoder = GzEncoder::new(out, Compression::default());
                encoder.write_all(plain).map_err(|e| e.to_string())?;
                encoder.finish().map_err(|e| e.to_string())?;
            }
            Codec::Snappy => xerial::compress(plain, out)?,
            Codec::Lz4 => {
                // Kafka's reader accepts only independent blocks
                let frame = FrameInfo::new()
                    .block_mode(BlockMode::Independent)
                    .block_size(BlockSize::Max64KB);
                let mut encoder = FrameEncoder::with_frame_info(frame, out);
                encoder.write_all(plain).map_err(|e| e.to_string())?;
                encoder.finish().map_err(|e| e.to_string())?;
            }
            Codec::Zstd => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    empty => empty.insert(CCtx::try_create().ok_or("no memory for zstd")?),
                };
                self.packed.clear();
                self.packed.reserve(zstd_safe::compress_bound(plain.len()));
                context
                    .compress(&mut self.packed, plain, ZSTD_LEVEL)
                    .map_err(zstd_safe::get_error_name)?;
                out.extend_from_slice(&self.packed);
                if self.packed.capacity() > KEEP {
                    self.packed = Vec::new();
                }
            }
        }
        Ok(())
    }
}
