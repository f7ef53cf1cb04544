//! Record batches of version 2: reads them from a Fetch response, writes them for a Produce request.
//!
//! # Parts
//!
//! ```text
//! bytes of a partition in a Fetch response
//!   | Batches            iterates over batches; an incomplete last one is partial, not an error
//! Batch                  typed view of the 61-byte header; nothing is copied
//!   | check_crc          verifies the checksum once, before any field is used; afterwards it is updated (checksum)
//!   | AbortedFilter      data, aborted or control, and the next fetch position
//!   | rewritten_header   pass: the same body under the producer's header (passing_header, then stamp_header)
//!   | Records            re-encode, verify: records borrowed from the batch or from Memory
//! BatchWriter            records into a new batch
//! ```
//!
//! # Malformed input
//!
//! Every input gives a value or a [`BatchError`]; none causes a panic. A number in the input determines the size of an
//! allocation only if the bytes that are present can produce that much. Decompression stops at [`Limits`].
//!
//! # Source
//!
//! The layout is that of Kafka's protocol guide, "Record Batch" and "Control Batches". Transaction markers are defined
//! in KIP-98, the delete horizon in KIP-534, zstd in KIP-110. Broker behaviour beyond these texts was tested on Kafka
//! 4.3.

#![forbid(unsafe_code)]

mod aborted;
mod bytes;
mod checksum;
mod codec;
mod compression;
mod continuity;
mod control;
mod cursor;
mod error;
mod records;
mod rewrite;
mod split;
mod view;
mod writer;
mod xerial;
mod zstd_bound;

pub use aborted::{AbortedFilter, AbortedTransaction, Judged, Verdict};
pub use bytes::{HEADER_SIZE, MAGIC};
pub use codec::Codec;
pub use compression::{Limits, Memory};
pub use continuity::{Continuity, Mark, is_compacted};
pub use control::{Control, Marker};
pub use cursor::put_unsigned;
pub use error::{BatchError, Obstacle};
pub use records::{HeaderRef, Headers, Record, Records};
pub use rewrite::{Stamp, passing_header, rewrite, rewritten_header, stamp_header};
pub use split::{Batches, Partial};
pub use view::{Batch, TimestampType};
pub use writer::{BatchWriter, OpenBatch};
