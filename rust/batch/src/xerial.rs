//! Snappy, raw and in the framing of xerial's Java library.
//!
//! ```text
//! magic    8 bytes   82 "SNAPPY" 00
//! version  8 bytes   two numbers, ignored
//! block    4 bytes length, big endian, then that many bytes of raw Snappy; repeated until the end
//! ```
//!
//! Streams may be concatenated: the magic may appear again in place of a block. Kafka's Java clients write the framing
//! and read both forms; librdkafka writes raw data.

use super::error::Fault;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// Block size of the Java library.
const BLOCK: usize = 32 * 1024;
/// Three bytes of Snappy give at most 64 (a copy of 64 bytes from a 16-bit distance). A block that claims more is
/// rejected before its length determines a buffer's size.
const MOST_PER_BYTE: usize = 22;

pub(super) fn decompress(body: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut decoder = snap::raw::Decoder::new();
    if !body.starts_with(&MAGIC) {
        return block(&mut decoder, body, limit, out);
    }
    let mut rest = body;
    while !rest.is_empty() {
        if let Some(stream) = rest.strip_prefix(&MAGIC) {
            rest = stream
                .get(VERSIONS.len()..)
                .ok_or_else(|| cut("stream header"))?;
            continue;
        }
        let (length, behind) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| cut("block length"))?;
        let (bytes, behind) = usize::try_from(u32::from_be_bytes(*length))
            .ok()
            .and_then(|length| behind.split_at_checked(length))
            .ok_or_else(|| cut("block"))?;
        block(&mut decoder, bytes, limit, out)?;
        rest = behind;
    }
    Ok(())
}

fn cut(what: &str) -> Fault {
    Fault::Malformed(format!("a {what} is cut"))
}

fn block(
    decoder: &mut snap::raw::Decoder,
    bytes: &[u8],
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let malformed = |error: snap::Error| Fault::Malformed(error.to_string());
    let size = snap::raw::decompress_len(bytes).map_err(malformed)?;
    let start = out.len();
    if size > bytes.len().saturating_mul(MOST_PER_BYTE) {
        return Err(Fault::Malformed(format!(
            "{} bytes cannot hold {size}",
            bytes.len()
        )));
    }
    let end = start
        .checked_add(size)
        .filter(|end| *end <= limit)
        .ok_or(Fault::TooLarge)?;
    out.resize(end, 0);
    let written = decoder
        .decompress(bytes, &mut out[start..])
        .map_err(malformed)?;
    out.truncate(start + written);
    Ok(())
}

pub(super) fn compress(plain: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut encoder = snap::raw::Encoder::new();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSIONS);
    for chunk in plain.chunks(BLOCK) {
        let length_at = out.len();
        let start = length_at + 4;
        out.resize(start + snap::raw::max_compress_len(chunk.len()), 0);
        let size = encoder
            .compress(chunk, &mut out[start..])
            .map_err(|error| error.to_string())?;
        out.truncate(start + size);
        let length = u32::try_from(size).map_err(|error| error.to_string())?;
        out[length_at..start].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Fault, MAGIC, compress, decompress};
    use proptest::prelude::*;

    fn plain(body: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decompress(body, 1 << 24, &mut out).ok().map(|()| out)
    }

    #[test]
    fn concatenated_streams_are_one_text() {
        let mut body = Vec::new();
        compress(b"first ", &mut body).unwrap();
        compress(b"second", &mut body).unwrap();
        assert_eq!(plain(&body).as_deref(), Some(&b"first second"[..]));
    }

    #[test]
    fn bare_data_is_read_as_well() {
        let body = snap::raw::Encoder::new()
            .compress_vec(b"bare bare bare")
            .unwrap();
        assert_eq!(plain(&body).as_deref(), Some(&b"bare bare bare"[..]));
    }

    #[test]
    fn the_densest_data_stays_below_the_assumed_ratio() {
        let zeros = vec![0; 1 << 20];
        let bare = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
        assert_eq!(plain(&bare).map(|plain| plain.len()), Some(zeros.len()));
    }

    #[test]
    fn a_claim_that_the_bytes_cannot_keep_allocates_nothing() {
        // varints of 2^31 and of 200, followed by too few bytes
        for body in [&[0x80, 0x80, 0x80, 0x80, 0x08][..], &[0xc8, 0x01, 0, 0]] {
            let mut out = Vec::new();
            let outcome = decompress(body, usize::MAX, &mut out);
            assert!(matches!(outcome, Err(Fault::Malformed(_))));
            assert_eq!(out.capacity(), 0);
        }
    }

    #[test]
    fn a_cut_frame_is_malformed() {
        let mut body = Vec::new();
        compress(b"text", &mut body).unwrap();
        for end in MAGIC.len()..body.len() {
            // at 16 the stream is complete and empty
            assert_eq!(plain(&body[..end]).is_some(), end == 16, "{end}");
        }
    }

    proptest! {
        #[test]
        fn text_survives_a_round_trip(text in proptest::collection::vec(any::<u8>(), 0..100_000)) {
            let mut body = Vec::new();
            compress(&text, &mut body).unwrap();
            prop_assert_eq!(plain(&body), Some(text));
        }
    }
}
