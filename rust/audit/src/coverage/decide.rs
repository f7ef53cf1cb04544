//! Matches claims with records.

use std::collections::{BTreeMap, HashMap};

use super::super::chain::Chains;
use super::super::log::{LogId, Logs, Span};
use super::super::report::{Fault, Producer, Report, TransactionName};
use super::{Claim, Compared, Cover, Data, Ended, add};

impl Data {
    fn holds(&self, span: Span) -> bool {
        let after = self.spans.partition_point(|own| own.first <= span.first);
        after
            .checked_sub(1)
            .is_some_and(|index| self.spans[index].contains(span))
    }

    fn records(&self) -> u64 {
        self.spans.iter().map(|span| span.count()).sum()
    }

    /// Removes `span` from the unclaimed records; false if some of it was claimed before.
    fn take(&mut self, span: Span) -> bool {
        let after = self
            .unclaimed
            .partition_point(|own| own.first <= span.first);
        let Some(index) = after
            .checked_sub(1)
            .filter(|index| self.unclaimed[*index].contains(span))
        else {
            return false;
        };
        let whole = self.unclaimed.remove(index);
        let behind = Span {
            first: span.last + 1,
            last: whole.last,
        };
        let before = Span {
            first: whole.first,
            last: span.first - 1,
        };
        for part in [behind, before] {
            if part.first <= part.last {
                self.unclaimed.insert(index, part);
            }
        }
        true
    }
}

impl Cover {
    /// Decides a claim, or keeps it until its records have been read.
    pub(super) fn claim(&mut self, logs: &Logs, report: &mut Report, claim: Claim) {
        let bounds = claim.bounds();
        let log = logs.get(claim.data);
        let key = (claim.data, claim.name.producer);
        if !log.is_of(&claim.topic_id) {
            report.unproven.positions += 1;
            self.live.remove(&claim.name);
        } else if !log.read || bounds.last >= log.next {
            self.sequence += 1;
            let waiting = self.waiting.entry(claim.data).or_default();
            waiting.insert((bounds.last, self.sequence), claim);
        } else if log.is_open(claim.name.producer, bounds) {
            self.held.entry(key).or_default().push(claim);
        } else {
            self.decide(logs, report, &claim);
        }
    }

    /// Records a transaction's segment in a partition; a second one shows that the transaction is torn.
    pub(super) fn touch(
        &mut self,
        logs: &Logs,
        report: &mut Report,
        name: &TransactionName,
        ended: Ended,
    ) {
        let Some(live) = self.live.get_mut(name) else {
            return;
        };
        let same = live
            .touched
            .iter()
            .find(|other| other.log == ended.log)
            .copied();
        match same {
            None => live.touched.push(ended),
            Some(other) if other.bounds.first != ended.bounds.first => {
                let detail = format!(
                    "its records are under two markers, after offsets {} and {}",
                    other.bounds.last, ended.bounds.last
                );
                let at = (ended.log, ended.bounds.first);
                self.torn(logs, report, at, Some(name), name.producer, detail);
            }
            Some(_) => {}
        }
    }

    pub(super) fn torn(
        &mut self,
        logs: &Logs,
        report: &mut Report,
        at: (LogId, i64),
        name: Option<&TransactionName>,
        producer: Producer,
        detail: String,
    ) {
        if let Some(live) = name.and_then(|name| self.live.get_mut(name)) {
            live.torn = true;
        }
        add(
            logs,
            report,
            Fault::TornTransaction,
            at,
            producer,
            name,
            detail,
        );
    }

    fn compare(&self, claim: &Claim) -> Compared {
        let key = (claim.data, claim.name.producer);
        let mut compared = Compared::default();
        for span in &claim.spans {
            let committed = self.data.get(&key).and_then(|segments| {
                let (first, data) = segments.range(..=span.first).next_back()?;
                data.holds(*span).then_some(*first)
            });
            let aborted = || {
                let spans = self.aborted_data.get(&key);
                spans.is_some_and(|spans| spans.iter().any(|other| other.overlaps(*span)))
            };
            match committed {
                Some(first) if compared.hits.last() == Some(&first) => {}
                Some(first) => compared.hits.push(first),
                None if aborted() => compared.aborted = true,
                None => compared.missing.push(*span),
            }
        }
        compared
    }

    fn decide(&mut self, logs: &Logs, report: &mut Report, claim: &Claim) {
        let compared = self.compare(claim);
        let producer = claim.name.producer;
        let place = (claim.log, claim.offset);
        let log = logs.get(claim.data);
        let (topic, partition) = (&log.topic, log.partition);
        let name = Some(&claim.name);
        let mut sound = true;
        if compared.hits.len() > 1 {
            let markers = compared.hits.len();
            let detail = format!("its records are under {markers} markers of {topic}-{partition}");
            self.torn(logs, report, place, name, producer, detail);
            sound = false;
        }
        if compared.aborted {
            let detail = format!(
                "its position is committed and its records of {topic}-{partition} are aborted"
            );
            self.torn(logs, report, place, name, producer, detail);
            sound = false;
        }
        let known_from = if self.folded.contains_key(&producer.id) {
            i64::MAX
        } else {
            let forgotten = self.forgotten.get(&claim.data);
            log.whole_from.max(forgotten.map_or(0, |last| last + 1))
        };
        let (refuted, gone): (Vec<Span>, Vec<Span>) = compared
            .missing
            .iter()
            .partition(|span| span.first >= known_from);
        if let Some(first) = refuted.first() {
            sound = false;
            let last = Span {
                first: claim.target_offset,
                last: claim.target_offset,
            };
            let nothing = compared.hits.is_empty() && !compared.aborted;
            if nothing && !self.holds(claim.data, producer, last) {
                let detail = format!(
                    "it counts {} records up to {topic}-{partition}@{}, where its transaction has no record",
                    claim.records, claim.target_offset
                );
                add(
                    logs,
                    report,
                    Fault::PositionWithoutData,
                    place,
                    producer,
                    name,
                    detail,
                );
            } else {
                let detail = format!(
                    "the chunk maps to {topic}-{partition}@{}..{}, where its transaction has no record",
                    first.first, first.last
                );
                add(
                    logs,
                    report,
                    Fault::MapMismatch,
                    place,
                    producer,
                    name,
                    detail,
                );
            }
        } else if !gone.is_empty() {
            report.unproven.positions += 1;
        }
        let chunk_last = claim.spans.last().map_or(-1, |span| span.last);
        if !compared.hits.is_empty()
            && compared.missing.is_empty()
            && chunk_last != claim.target_offset
        {
            let detail = format!(
                "it names target offset {}, its last record is at {topic}-{partition}@{chunk_last}",
                claim.target_offset
            );
            add(
                logs,
                report,
                Fault::WrongTargetOffset,
                place,
                producer,
                name,
                detail,
            );
        }
        for first in &compared.hits {
            sound &= self.take(logs, report, claim, *first);
        }
        self.settle(report, &claim.name, sound && gone.is_empty());
    }

    fn holds(&self, data: LogId, producer: Producer, span: Span) -> bool {
        self.data
            .get(&(data, producer))
            .is_some_and(|segments| segments.values().any(|segment| segment.holds(span)))
    }

    /// Removes the claimed records of a committed segment; discards the segment once nothing is left of it.
    fn take(&mut self, logs: &Logs, report: &mut Report, claim: &Claim, first: i64) -> bool {
        let key = (claim.data, claim.name.producer);
        let Some(segments) = self.data.get_mut(&key) else {
            return true;
        };
        let Some(segment) = segments.get_mut(&first) else {
            return true;
        };
        let mut twice = None;
        let whole = claim.chunkless && i64::try_from(segment.records()) == Ok(claim.records);
        if whole {
            segment.unclaimed.clear();
        } else {
            for span in &claim.spans {
                if segment.holds(*span) && !segment.take(*span) {
                    twice = Some(*span);
                }
            }
        }
        let owner = segment
            .owner
            .get_or_insert_with(|| claim.name.clone())
            .clone();
        let ended = segment.ended;
        if segment.unclaimed.is_empty() {
            report.records += segment.records();
            segments.remove(&first);
            if segments.is_empty() {
                self.data.remove(&key);
            }
        }
        self.touch(logs, report, &claim.name, ended);
        let at = (claim.data, first);
        let producer = claim.name.producer;
        if let Some(span) = twice {
            let detail = format!("offsets {} to {} are claimed twice", span.first, span.last);
            add(
                logs,
                report,
                Fault::MapMismatch,
                at,
                producer,
                Some(&claim.name),
                detail,
            );
        }
        if owner != claim.name {
            let detail = format!("its records are under the marker of {owner}");
            self.torn(logs, report, at, Some(&claim.name), producer, detail);
        }
        twice.is_none() && owner == claim.name
    }

    /// Completes one claim of a transaction; the last one completes the transaction.
    fn settle(&mut self, report: &mut Report, name: &TransactionName, sound: bool) {
        let Some(live) = self.live.get_mut(name) else {
            return;
        };
        live.awaiting = live.awaiting.saturating_sub(1);
        live.torn |= !sound;
        if live.awaiting > 0 {
            return;
        }
        let Some(live) = self.live.remove(name) else {
            return;
        };
        if live.torn {
            return;
        }
        report.transactions += 1;
        let times = || live.touched.iter().map(|ended| ended.at);
        let spread = times().max().unwrap_or(0) - times().min().unwrap_or(0);
        if report
            .widest_spread
            .as_ref()
            .is_none_or(|(widest, _)| spread > *widest)
        {
            report.widest_spread = Some((spread, name.clone()));
        }
    }

    /// Classifies a producer as foreign, because it has more segments than can be remembered.
    pub(super) fn fold(&mut self, id: i64, records: u64) {
        let mut folded = records;
        let mut segments = 0;
        self.data.retain(|(_, producer), data| {
            if producer.id != id {
                return true;
            }
            segments += data.len();
            folded += data.values().map(Data::records).sum::<u64>();
            false
        });
        self.unknown = self.unknown.saturating_sub(segments + 1);
        self.folded.insert(id, folded);
    }

    // -- the end of input ---------------------------------------------------------------------------

    pub(super) fn finish_claims(&mut self, logs: &Logs, report: &mut Report, at_rest: bool) {
        let mut claims: Vec<Claim> = std::mem::take(&mut self.held)
            .into_values()
            .flatten()
            .collect();
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            claims.extend(waiting.into_values());
        }
        claims.sort_by_key(|claim| (claim.log, claim.offset));
        for claim in claims {
            let log = logs.get(claim.data);
            if !log.read {
                let name = (log.topic.clone(), log.partition);
                if !report.unread.contains(&name) {
                    report.unread.push(name);
                }
                report.unproven.positions += 1;
            } else if log.is_open(claim.name.producer, claim.bounds()) {
                // the open transaction is reported separately
                report.unproven.under_way += 1;
            } else if !at_rest && claim.bounds().last >= log.next {
                report.unproven.under_way += 1;
            } else {
                self.decide(logs, report, &claim);
            }
        }
    }

    pub(super) fn finish_data(
        &mut self,
        logs: &Logs,
        chains: &Chains,
        report: &mut Report,
        at_rest: bool,
    ) {
        let mut left: Vec<_> = std::mem::take(&mut self.data).into_iter().collect();
        left.sort_by_key(|(key, _)| *key);
        let mut newest: HashMap<(LogId, i64), i64> = HashMap::new();
        for ((log, producer), segments) in &left {
            let last = newest.entry((*log, producer.id)).or_default();
            *last = segments
                .keys()
                .next_back()
                .map_or(*last, |first| (*last).max(*first));
        }
        let mut foreign: BTreeMap<i64, u64> = BTreeMap::new();
        for ((log, producer), segments) in left {
            for (first, data) in segments {
                let records: u64 = data.unclaimed.iter().map(|span| span.count()).sum();
                if !self.ours.contains(&producer.id) {
                    *foreign.entry(producer.id).or_default() += data.records();
                } else if !chains.can_judge(logs, log, data.ended.bounds.last)
                    || self
                        .forgotten
                        .get(&log)
                        .is_some_and(|last| data.ended.bounds.first <= *last)
                {
                    report.unproven.records += records;
                } else if !at_rest && newest[&(log, producer.id)] == first {
                    report.unproven.under_way += 1;
                } else {
                    self.uncovered(logs, report, (log, producer), &data, records);
                }
            }
        }
        report.foreign_producers += foreign.len() as u64;
        report.foreign_records += foreign.values().sum::<u64>();
    }

    fn uncovered(
        &self,
        logs: &Logs,
        report: &mut Report,
        (log, producer): (LogId, Producer),
        data: &Data,
        records: u64,
    ) {
        let at = data
            .unclaimed
            .first()
            .map_or(data.ended.bounds.first, |span| span.first);
        let torn = self
            .aborted_positions
            .iter()
            .find(|(by, target, offset, _)| {
                *by == producer
                    && *target == log
                    && (data.ended.bounds.first..=data.ended.bounds.last).contains(offset)
            });
        let (fault, name, detail) = match torn {
            Some((_, _, _, name)) => (
                Fault::TornTransaction,
                Some(name),
                format!("{records} records are committed and their positions are aborted"),
            ),
            None => (
                Fault::UncoveredData,
                data.owner.as_ref(),
                format!(
                    "{records} records are committed without a position of their own transaction"
                ),
            ),
        };
        add(logs, report, fault, (log, at), producer, name, detail);
    }
}
