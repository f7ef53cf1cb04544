//! Mutates bytes, and restores their checksums and lengths.

/// A small generator with a seed, so that a failure can be repeated.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, 0 for 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// Numbers at the limits of their types.
const EDGES: [i64; 9] = [
    -1,
    0,
    1,
    0x7f,
    0x80,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

/// Applies one mutation.
pub(crate) fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.byte());
        return;
    }
    let place = random.below(bytes.len());
    match random.below(9) {
        0 => bytes[place] ^= 1 << random.below(8),
        1 => bytes[place] = random.byte(),
        2 => bytes.truncate(place),
        3 => bytes.insert(place, random.byte()),
        4 => {
            let number = EDGES[random.below(EDGES.len())].to_be_bytes();
            // only the last bytes, so that shorter fields get edge values of their own
            let size = [1, 2, 4, 8][random.below(4)];
            overwrite(bytes, place, &number[8 - size..]);
        }
        5 => {
            // a varint that does not end where it should
            let size = 1 + random.below(11);
            overwrite(bytes, place, &vec![0xff; size]);
        }
        6 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len());
            bytes.truncate(place);
            bytes.extend_from_slice(&other[from..]);
        }
        7 => {
            let end = (place + 1 + random.below(200)).min(bytes.len());
            let part = bytes[place..end].to_vec();
            bytes.splice(place..place, part);
        }
        _ => {
            let end = (place + 1 + random.below(200)).min(bytes.len());
            bytes.drain(place..end);
        }
    }
}

fn overwrite(bytes: &mut [u8], place: usize, with: &[u8]) {
    for (byte, value) in bytes[place..].iter_mut().zip(with) {
        *byte = *value;
    }
}

/// Leaves bytes unchanged.
pub(crate) fn leave(_bytes: &mut [u8], _random: &mut Random) {}

/// Corrects the checksum of every batch, and the length of the last one; but not always.
pub(crate) fn mend_batches(bytes: &mut [u8], random: &mut Random) {
    if random.below(8) == 0 {
        return;
    }
    let mut start = 0;
    while let Some(rest) = bytes.get(start..).filter(|rest| rest.len() >= 61) {
        let length = i32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]);
        let told = usize::try_from(length).map_or(0, |length| length.saturating_add(12));
        let size = if (61..=rest.len()).contains(&told) {
            told
        } else {
            rest.len()
        };
        let batch = &mut bytes[start..start + size];
        if let Ok(length) = i32::try_from(size - 12) {
            batch[8..12].copy_from_slice(&length.to_be_bytes());
        }
        // the format's version is one bit from an unsupported one
        batch[16] = 2;
        let crc = crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        start += size;
    }
}

/// Computes CRC-32C (RFC 3720, appendix B.4), byte by byte.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)]
    })
}

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0_u32;
    while index < 256 {
        let mut crc = index;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
}
