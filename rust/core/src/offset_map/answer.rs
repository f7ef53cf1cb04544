//! Where an offset is on the other side, from the whole map of a partition and what is known around it.
//!
//! The map ends with its last record. Behind that, the committed position says how far the source has been dealt with
//! (markers, aborted and dropped records included), and the target's last stable offset how far the target holds
//! nothing more from this source. With both, an offset that no range names is still answered exactly.

use super::{OffsetMap, Translation};

/// Where an offset is on the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The record at this offset is that record.
    Exact(i64),
    /// No record of the link is at the offset asked for; the next one is at this offset, or will be at or behind it.
    /// Going on there neither skips nor repeats a mirrored record.
    Next(i64),
    /// Nothing is known, and why.
    Unknown(Reason),
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The map holds no range.
    Nothing,
    /// The offset lies before the first record that the map knows, which is at this offset of the side asked about.
    Before(i64),
    /// The offset lies at or behind the end of what was looked at, this offset of the side asked about.
    Beyond(i64),
}

impl OffsetMap {
    /// Where source offset `offset` is on the target, if the newest chunks alone can say; older ones are not taken in.
    ///
    /// They can where they hold the record at the offset or the one before it. Where the past was rewritten, an older
    /// chunk may hold a record at the offset that stands behind all that the newest ones hold: then the answer is
    /// [`Answer::Next`] where the whole map says [`Answer::Exact`]. Both sides of a map grow, so going on there still
    /// neither skips nor repeats a mirrored record.
    #[must_use]
    pub fn part_to_target(&self, offset: i64) -> Option<Answer> {
        part(offset, |at| self.to_target(at))
    }

    /// Where target offset `offset` is on the source, likewise.
    #[must_use]
    pub fn part_to_source(&self, offset: i64) -> Option<Answer> {
        part(offset, |at| self.to_source(at))
    }

    /// Where source offset `offset` is on the target.
    ///
    /// `position` is the next source offset that the mirror fetches. It must have been read before the map, so that
    /// the map holds all records below it.
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

    /// Where target offset `offset` is on the source.
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
        // between the last record and the end of what was dealt with there is none
        Translation::Unknown if offset <= known_to => Answer::Next(behind_last),
        Translation::Unknown => Answer::Unknown(Reason::Beyond(known_to)),
    }
}
