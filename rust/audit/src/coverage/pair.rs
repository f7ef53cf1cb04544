//! Matches positions with chunks.

use flate2::Crc;

use super::super::facts::Source;
use super::super::log::{Logs, Span};
use super::super::report::{Fault, Producer, Report};
use super::{AwaitedChunk, AwaitedPosition, Claim, Cover, add};

impl Cover {
    /// Pairs the positions and chunks of one producer id and source partition.
    pub(super) fn pair(&mut self, logs: &mut Logs, report: &mut Report, key: &(i64, Source)) {
        while let Some(pairs) = self.pairs.get_mut(key) {
            let (Some(position), Some(chunk)) = (pairs.positions.front(), pairs.chunks.front())
            else {
                if pairs.positions.is_empty() && pairs.chunks.is_empty() {
                    self.pairs.remove(key);
                }
                return;
            };
            let wanted = &position.position;
            let here = (wanted.name.producer.epoch, wanted.prev.unwrap_or(0));
            let there = (chunk.epoch, chunk.chunk.first);
            if there < here {
                let chunk = pairs.chunks.pop_front();
                self.chunks -= 1;
                self.without_position(logs, report, key.0, chunk);
            } else if there.0 > here.0 || there.1 >= wanted.offset {
                let position = pairs.positions.pop_front();
                self.without_chunk(logs, report, position);
            } else if let (Some(position), Some(chunk)) =
                (pairs.positions.pop_front(), pairs.chunks.pop_front())
            {
                self.chunks -= 1;
                self.paired(logs, report, position, &chunk);
            }
        }
    }

    fn paired(
        &mut self,
        logs: &mut Logs,
        report: &mut Report,
        awaited: AwaitedPosition,
        chunk: &AwaitedChunk,
    ) {
        let position = awaited.position;
        let name = position.name.clone();
        let place = (chunk.ended.log, chunk.offset);
        let mismatch = |report: &mut Report, logs: &Logs, detail: String| {
            add(
                logs,
                report,
                Fault::MapMismatch,
                place,
                name.producer,
                Some(&name),
                detail,
            );
        };
        let map = logs.get(chunk.ended.log);
        let home = home(&position.source, logs.map_partitions());
        if home != i64::from(map.partition) {
            let detail =
                format!("the chunk belongs in partition {home}, where readers look for it");
            mismatch(report, logs, detail);
        }
        let ranges = &chunk.chunk.ranges;
        let count = ranges.iter().map(|range| range.count).sum::<i64>();
        if count != position.records {
            let detail = format!(
                "it maps {count} records, but the position counts {}",
                position.records
            );
            mismatch(report, logs, detail);
        }
        let source_end = ranges.last().map_or(0, |range| range.source + range.count);
        let source_start = ranges.first().map_or(0, |range| range.source);
        if source_end > position.offset || source_start < chunk.chunk.first {
            let detail = format!(
                "it maps source offsets [{source_start}, {source_end}) and the position covers [{}, {})",
                chunk.chunk.first, position.offset
            );
            mismatch(report, logs, detail);
        }
        if chunk.chunk.topic_id != position.topic_id {
            mismatch(
                report,
                logs,
                "it names another source topic id than the position".into(),
            );
        }
        let target = (
            chunk.chunk.target_topic.as_str(),
            chunk.chunk.target_partition,
        );
        if target != (position.target_topic.as_str(), position.target_partition) {
            let detail = format!(
                "it maps to {}-{} and the position names {}-{}",
                target.0, target.1, position.target_topic, position.target_partition
            );
            mismatch(report, logs, detail);
        }
        let segment = chunk.ended.bounds.first;
        let owner = self
            .map_owner
            .insert((chunk.ended.log, name.producer.id), (segment, name.clone()));
        let torn = owner.filter(|(before, other)| *before == segment && *other != name);
        if let Some((_, other)) = torn {
            let detail = format!("its chunk is under the marker of {other}");
            self.torn(logs, report, place, Some(&name), name.producer, detail);
        }
        self.touch(logs, report, &name, chunk.ended);
        let spans = ranges
            .iter()
            .map(|range| Span {
                first: range.target,
                last: range.target + range.count - 1,
            })
            .collect();
        let claim = Claim {
            name: position.name,
            log: awaited.ended.log,
            offset: awaited.offset,
            data: logs.named(target.0, target.1),
            spans,
            target_offset: position.target_offset.unwrap_or(-1),
            records: position.records,
            topic_id: position.target_topic_id,
            chunkless: false,
        };
        self.claim(logs, report, claim);
    }

    fn without_position(
        &mut self,
        logs: &Logs,
        report: &mut Report,
        producer_id: i64,
        chunk: Option<AwaitedChunk>,
    ) {
        let Some(chunk) = chunk else { return };
        if !logs.positions_whole() {
            report.unproven.positions += 1;
            return;
        }
        let producer = Producer {
            id: producer_id,
            epoch: chunk.epoch,
        };
        if self.set.contains(&(producer, chunk.chunk.source.clone())) {
            return;
        }
        let aborted = self
            .aborted_positions
            .iter()
            .find(|(by, ..)| *by == producer);
        let (fault, name, detail) = match aborted {
            Some((_, _, _, name)) => (
                Fault::TornTransaction,
                Some(name.clone()),
                "its chunk is committed and its positions are aborted",
            ),
            None => (
                Fault::MapMismatch,
                None,
                "no position belongs to this chunk",
            ),
        };
        let place = (chunk.ended.log, chunk.offset);
        add(
            logs,
            report,
            fault,
            place,
            producer,
            name.as_ref(),
            detail.into(),
        );
    }

    fn without_chunk(
        &mut self,
        logs: &mut Logs,
        report: &mut Report,
        position: Option<AwaitedPosition>,
    ) {
        let Some(AwaitedPosition {
            offset,
            position,
            ended,
        }) = position
        else {
            return;
        };
        let place = (ended.log, offset);
        let name = position.name.clone();
        let aborted = self.aborted_chunks.iter().any(|(by, source, first)| {
            *by == name.producer
                && *source == position.source
                && (position.prev.unwrap_or(0)..position.offset).contains(first)
        });
        let data = logs.named(&position.target_topic, position.target_partition);
        let forgotten = self
            .forgotten
            .get(&data)
            .is_some_and(|last| position.target_offset <= Some(*last));
        if aborted {
            let detail = "its position is committed and its chunk is aborted".to_owned();
            self.torn(logs, report, place, Some(&name), name.producer, detail);
        } else if logs.map_whole() && !forgotten {
            let detail = "the offset map has no chunk of this position's records".to_owned();
            add(
                logs,
                report,
                Fault::MapMismatch,
                place,
                name.producer,
                Some(&name),
                detail,
            );
        } else {
            report.unproven.positions += 1;
        }
        let Some(target_offset) = position.target_offset else {
            let detail = "it counts records but names no target offset".to_owned();
            add(
                logs,
                report,
                Fault::WrongTargetOffset,
                place,
                name.producer,
                Some(&name),
                detail,
            );
            return;
        };
        let claim = Claim {
            name,
            log: ended.log,
            offset,
            data,
            spans: vec![Span {
                first: target_offset,
                last: target_offset,
            }],
            target_offset,
            records: position.records,
            topic_id: position.target_topic_id,
            chunkless: true,
        };
        self.claim(logs, report, claim);
    }

    /// Discards a chunk whose position was most likely removed: nothing is proved about its records.
    pub(super) fn forget_chunk(
        &mut self,
        logs: &mut Logs,
        report: &mut Report,
        chunk: Option<AwaitedChunk>,
    ) {
        let Some(AwaitedChunk { chunk, .. }) = chunk else {
            return;
        };
        self.chunks -= 1;
        report.unproven.positions += 1;
        if let Some(last) = chunk.ranges.last() {
            let data = logs.named(&chunk.target_topic, chunk.target_partition);
            let forgotten = self.forgotten.entry(data).or_default();
            *forgotten = (*forgotten).max(last.target + last.count - 1);
        }
    }

    /// Decides the remaining positions and chunks at the end of input.
    pub(super) fn finish_pairs(&mut self, logs: &mut Logs, report: &mut Report, at_rest: bool) {
        let mut keys: Vec<_> = self.pairs.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            let Some(pairs) = self.pairs.remove(&key) else {
                continue;
            };
            for AwaitedPosition {
                offset,
                position,
                ended,
            } in pairs.positions
            {
                let last = self.newest.get(&key.0) == Some(&position.name);
                if !at_rest && last {
                    report.unproven.under_way += 1;
                    continue;
                }
                let position = AwaitedPosition {
                    offset,
                    position,
                    ended,
                };
                self.without_chunk(logs, report, Some(position));
            }
            for chunk in pairs.chunks {
                if at_rest {
                    self.without_position(logs, report, key.0, Some(chunk));
                } else {
                    report.unproven.under_way += 1;
                }
            }
        }
    }
}

/// Returns the partition of the offset map that holds all chunks of a source partition: crc32 of name and number, as in
/// `eomirror.records.offset_map`.
fn home(source: &Source, partitions: usize) -> i64 {
    let mut crc = Crc::new();
    crc.update(format!("{}\0{}", source.topic, source.partition).as_bytes());
    let partitions = i64::try_from(partitions.max(1)).unwrap_or(i64::MAX);
    i64::from(crc.sum()) % partitions
}
