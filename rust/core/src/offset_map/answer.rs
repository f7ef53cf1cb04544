//! Translates an offset with the whole map of a partition and the facts around it.
//!
//! The map ends with its last record. The committed position tells how far the source was processed beyond it (markers,
//! aborted and dropped records included). The target's last stable offset tells how far the target holds no other
//! records of this source. With both, an offset outside of all ranges still has an exact answer.

use super::{OffsetMap, Translation};

/// Translation of an offset to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The record at the offset has this offset on the other side.
    Exact(i64),
    /// No record of the link is at the offset; the next one is, or will be, at or after this offset. Resuming there
    /// neither skips nor repeats a mirrored record.
    Next(i64),
    /// The translation is unknown, for this reason.
    Unknown(Reason),
}

/// Reason for an unknown translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The map holds no range.
    Nothing,
    /// The offset precedes the map's first record, which is at this offset of the same side.
    Before(i64),
    /// The offset is at or after the end of the known range, this offset of the same side.
    Beyond(i64),
}

impl OffsetMap {
    /// Translates source offset `offset` to the target if the newest chunks suffice; older chunks are not applied.
    ///
    /// They suffice if they hold the record at the offset or the one before it. If past offsets were mirrored again, an
    /// older chunk may hold a record at the offset that follows all records of the newest ones. The result is then
    /// [`Answer::Next`] where the whole map gives [`Answer::Exact`]. Both sides of a map increase, so resuming there
    /// still neither skips nor repeats a mirrored record.
    #[must_use]
    pub fn part_to_target(&self, offset: i64) -> Option<Answer> {
        part(offset, |at| self.to_target(at))
    }

    /// Translates target offset `offset` to the source if the newest chunks suffice; see [`Self::part_to_target`].
    #[must_use]
    pub fn part_to_source(&self, offset: i64) -> Option<Answer> {
        part(offset, |at| self.to_source(at))
    }

    /// Translates source offset `offset` to the target.
    ///
    /// `position` is the next source offset that the mirror fetches. It must have been read before the map, so that the
    /// map holds all records below it.
    #[must_use]
    pub fn answer_to_target(&self, offset: i64, position: i64) -> Answer {
        let Some((first, last)) = self.ranges.first().zip(self.ranges.last()) else {
            return Answer::Unknown(Reason::Nothing);
        };
        answer(
            self.to_target(offset),
            offset,
            first.source,
            position.max(last.source_end()),
            last.target_end(),
        )
    }

    /// Translates target offset `offset` to the source.
    ///
    /// `stable_end` is the target partition's last stable offset, read before the map for the same reason.
    #[must_use]
    pub fn answer_to_source(&self, offset: i64, stable_end: i64) -> Answer {
        let Some((first, last)) = self.ranges.first().zip(self.ranges.last()) else {
            return Answer::Unknown(Reason::Nothing);
        };
        answer(
            self.to_source(offset),
            offset,
            first.target,
            stable_end.max(last.target_end()),
            last.source_end(),
        )
    }
}

fn part(offset: i64, translate: impl Fn(i64) -> Translation) -> Option<Answer> {
    if let Translation::Exact(at) = translate(offset) {
        return Some(Answer::Exact(at));
    }
    match translate(offset.checked_sub(1)?) {
        Translation::Exact(at) => Some(Answer::Next(at + 1)),
        Translation::Next(_) | Translation::Unknown => None,
    }
}

fn answer(
    translation: Translation,
    offset: i64,
    first: i64,
    known_to: i64,
    behind_last: i64,
) -> Answer {
    match translation {
        Translation::Exact(at) => Answer::Exact(at),
        Translation::Next(at) => Answer::Next(at),
        Translation::Unknown if offset < first => Answer::Unknown(Reason::Before(first)),
        // there is no record between the last one and the end of the processed range
        Translation::Unknown if offset <= known_to => Answer::Next(behind_last),
        Translation::Unknown => Answer::Unknown(Reason::Beyond(known_to)),
    }
}
