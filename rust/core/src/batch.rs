//! Record batches of version 2, as a Fetch answer brings them and a Produce request takes them.
//!
//! # How the parts fit
//!
//! ```text
//! bytes of a partition in a Fetch answer
//!   | Batches            one Batch after the other; a cut last one is partial, not an error
//! Batch                  typed view of the 61-byte header; nothing is copied
//!   | check_crc          before anything in it is believed; once, then it is carried on (checksum)
//!   | AbortedFilter      data, aborted or control, and the position behind it
//!   | rewritten_header   pass: the same body under our producer's header (passing_header, later stamp_header)
//!   | records            re-encode, verify: records borrowed from the batch or from Memory
//! BatchWriter            records into a new batch
//! ```
//!
//! # What malformed bytes can do
//!
//! Every input gives a value or a [`BatchError`]; none makes this module panic. No number from the input sizes an
//! allocation unless the bytes that are there could produce that much; decompression stops at [`Limits`].
//!
//! # Source
//!
//! The layout is that of Kafka's protocol guide, "Record Batch" and "Control Batches"; transaction markers are
//! KIP-98, the delete horizon KIP-534, zstd KIP-110. What brokers do beyond the text was tested on Kafka 4.3.

mod aborted;
mod bytes;
mod checksum;
mod codec;
mod compression;
mod continuity;
mod control;
mod cursor;
mod digest;
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
pub use digest::digest_batch;
pub use error::{BatchError, Obstacle};
pub use records::{Headers, Record, Records};
pub use rewrite::{Stamp, passing_header, rewrite, rewritten_header, stamp_header};
pub use split::{Batches, Partial};
pub use view::{Batch, TimestampType};
pub use writer::BatchWriter;
