//! Bounds the decompressed size of zstd data by the block headers that are present (RFC 8878, section 3.1.1).
//!
//! The frame's content size is set by the sender, and often missing. Blocks are reliable: each has its header in the
//! data and gives at most 128 KiB.

const FRAME: u32 = 0xfd2f_b528;
const SKIPPABLE: std::ops::RangeInclusive<u32> = 0x184d_2a50..=0x184d_2a5f;
const MOST_PER_BLOCK: usize = 128 * 1024;

/// Returns an upper bound for all frames together; `None` if a frame is incomplete or invalid.
pub(super) fn most_bytes(data: &[u8]) -> Option<usize> {
    let mut rest = data;
    let mut most = 0_usize;
    while !rest.is_empty() {
        let magic = u32::from_le_bytes(*take(&mut rest)?);
        if SKIPPABLE.contains(&magic) {
            let size = u32::from_le_bytes(*take(&mut rest)?);
            skip(&mut rest, usize::try_from(size).ok()?)?;
        } else if magic == FRAME {
            most = most.checked_add(frame(&mut rest)?)?;
        } else {
            return None;
        }
    }
    Some(most)
}

fn frame(rest: &mut &[u8]) -> Option<usize> {
    let [descriptor] = *take(rest)?;
    let single_segment = descriptor & 0x20 != 0;
    let window = usize::from(!single_segment);
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content_size = [usize::from(single_segment), 2, 4, 8][usize::from(descriptor >> 6)];
    skip(rest, window + dictionary + content_size)?;
    let mut most = 0_usize;
    loop {
        let [low, middle, high] = *take(rest)?;
        let header = u32::from_le_bytes([low, middle, high, 0]);
        let size = usize::try_from(header >> 3).ok()?;
        let becomes = match (header >> 1) & 3 {
            0 => {
                skip(rest, size)?;
                size
            }
            1 => {
                skip(rest, 1)?;
                size.min(MOST_PER_BLOCK)
            }
            2 => {
                skip(rest, size)?;
                MOST_PER_BLOCK
            }
            _ => return None,
        };
        most = most.checked_add(becomes)?;
        if header & 1 == 1 {
            break;
        }
    }
    if descriptor & 0x04 != 0 {
        skip(rest, 4)?;
    }
    Some(most)
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(taken)
}

fn skip(rest: &mut &[u8], count: usize) -> Option<()> {
    *rest = rest.get(count..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::most_bytes;
    use proptest::prelude::*;

    fn compressed(text: &[u8], level: i32) -> Vec<u8> {
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
        zstd_safe::compress(&mut out, text, level).unwrap();
        out
    }

    #[test]
    fn skippable_frames_become_nothing() {
        let mut data = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        assert_eq!(most_bytes(&data), Some(0));
        data.pop();
        assert_eq!(most_bytes(&data), None);
    }

    #[test]
    fn a_cut_frame_has_no_bound() {
        let data = compressed(&[7; 1000], 3);
        for end in 1..data.len() {
            assert_eq!(most_bytes(&data[..end]), None, "{end}");
        }
    }

    proptest! {
        #[test]
        fn the_bound_holds_and_is_no_more_than_the_bytes_could_give(
            pattern in proptest::collection::vec(any::<u8>(), 1..400),
            times in 1_usize..2000,
            level in 1_i32..8,
        ) {
            let text = pattern.repeat(times);
            let data = compressed(&text, level);
            let most = most_bytes(&data).unwrap();
            prop_assert!(most >= text.len());
            // a block has a header and at least one byte
            prop_assert!(most <= data.len() / 4 * super::MOST_PER_BLOCK);
        }
    }
}
