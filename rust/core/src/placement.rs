//! Chooses target partitions by key, as Java's default partitioner does for a record with a key.

/// Seed and multiplier of `org.apache.kafka.common.utils.Utils.murmur2`.
const SEED: u32 = 0x9747_b28c;
const MULTIPLIER: u32 = 0x5bd1_e995;

/// Returns the 32-bit murmur2 hash of a key, with Kafka's seed.
#[must_use]
pub fn murmur2(key: &[u8]) -> u32 {
    // Java's array length is an int, and so is the length that enters the hash
    #[allow(clippy::cast_possible_truncation)]
    let mut hash = SEED ^ key.len() as u32;
    let words = key.chunks_exact(4);
    let rest = words.remainder();
    for word in words {
        let mut mixed = little_endian(word).wrapping_mul(MULTIPLIER);
        mixed ^= mixed >> 24;
        hash = hash.wrapping_mul(MULTIPLIER) ^ mixed.wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        hash = (hash ^ little_endian(rest)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(MULTIPLIER);
    hash ^ (hash >> 15)
}

/// Returns the target partition of a record: murmur2 of its key; without a key, its source partition modulo `count`.
///
/// The choice depends on the record alone, so a retry places it in the same partition. `count` must be positive.
#[must_use]
pub fn place(key: Option<&[u8]>, source_partition: i32, count: i32) -> i32 {
    match key {
        // Java clears the sign bit
        Some(key) => signed(murmur2(key) & 0x7fff_ffff) % count,
        None => source_partition % count,
    }
}

/// Returns which of `tasks` writes a target partition. All rows of a partition go to one task; `tasks` must be positive.
#[must_use]
pub fn task_of(topic: &[u8], partition: i32, tasks: i32) -> i32 {
    let first = i64::from(crc32c::crc32c(topic));
    i32::try_from((first + i64::from(partition)).rem_euclid(i64::from(tasks))).unwrap_or(0)
}

/// Places rows without a key in one partition until it has got [`Sticky::STRETCH`] bytes, then in the next one, as Java's
/// default partitioner fills one batch after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sticky {
    partition: i32,
    bytes: usize,
}

impl Sticky {
    /// Bytes in one partition before the next one is filled.
    pub const STRETCH: usize = 128 * 1024;

    /// Returns the state of a task, whose number is where it begins.
    #[must_use]
    pub const fn new(task: i32) -> Self {
        Self {
            partition: task,
            bytes: 0,
        }
    }

    /// Returns the partition of a row of so many bytes. `count` must be positive.
    pub fn place(&mut self, size: usize, count: i32) -> i32 {
        if self.bytes >= Self::STRETCH {
            self.partition = self.partition.wrapping_add(1);
            self.bytes = 0;
        }
        self.bytes += size;
        self.partition.rem_euclid(count)
    }
}

/// Returns up to four bytes as a number, the first one lowest.
fn little_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Returns the same bits as Java's int.
fn signed(hash: u32) -> i32 {
    i32::from_ne_bytes(hash.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::{Sticky, murmur2, place, signed, task_of};

    #[test]
    fn partitions_of_a_topic_are_spread_over_tasks_in_turn() {
        let tasks: Vec<i32> = (0..6).map(|at| task_of(b"orders", at, 3)).collect();
        assert_eq!(tasks[..3], tasks[3..]);
        let mut sorted = tasks[..3].to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
    }

    #[test]
    fn rows_without_a_key_fill_one_partition_after_the_other() {
        let mut sticky = Sticky::new(1);
        let half = Sticky::STRETCH / 2;
        let placed: Vec<i32> = (0..7).map(|_| sticky.place(half, 3)).collect();
        assert_eq!(placed, [1, 1, 2, 2, 0, 0, 1]);
    }

    /// Values of Apache Kafka's own test (`UtilsTest.testMurmur2`).
    #[test]
    fn the_hash_is_that_of_kafka() {
        for (key, hash) in [
            (&b"21"[..], -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (
                b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(signed(murmur2(key)), hash);
        }
    }

    #[test]
    fn a_record_without_a_key_goes_by_its_source_partition() {
        assert_eq!(place(None, 7, 3), 1);
        assert_eq!(place(None, 2, 12), 2);
        // an empty key is a key
        assert_eq!(place(Some(b""), 7, 1_000), (275_646_681 % 1_000));
    }

    #[test]
    fn a_negative_hash_has_its_sign_bit_cleared() {
        assert_eq!(place(Some(b"21"), 0, 10), 1_173_551_340 % 10);
    }
}
