//! Small logs of state: a claim that exactly one of several processes gets, and the last committed record of a key.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use eomirror_batch::{AbortedFilter, Batches, Limits as Sizes, Memory, Record, Records, Verdict};
use eomirror_kafka::{
    Assignment, Client, Clock, Error, Fetcher, IsolationLevel, Limits, OffsetSpec, Outcome,
    Properties, TopicPartition,
};

use crate::rows::one_record;

const WHAT: &str = "reading a topic of state";

/// Claims `key` under the name `own`. Returns true if no other name claimed it at or behind offset `since`.
///
/// Each process appends its own record and reads the log from a place before all of them. The partition's log has one
/// order, so all see the same first record, also one whose process has died. A record that a retry wrote twice changes
/// nothing.
pub fn claim(
    properties: Properties,
    clock: &Arc<dyn Clock>,
    (target, since): (&TopicPartition, i64),
    (key, own): (&[u8], &[u8]),
    deadline: Instant,
) -> Result<bool, Error> {
    let limits = Limits::from_properties(&properties);
    let mut client = Client::unconnected(properties, Arc::clone(clock))?;
    let now = i64::try_from(clock.unix_time().as_millis()).unwrap_or(-1);
    let batch = one_record(now, key, own).map_err(|reason| unreadable(target, reason))?;
    let written = client.append(target, &batch, deadline)?;
    let level = IsolationLevel::ReadUncommitted;
    let mut fetcher = Fetcher::new(client, level, limits);
    let range = (since, written.max(since) + 1);
    let mut first = None;
    read(&mut fetcher, target, range, clock, deadline, |record| {
        if record.key == Some(key) {
            first = Some(record.value == Some(own));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    Ok(first.unwrap_or(false))
}

/// Returns the value of the last committed record with this key; `None` without one, or behind a tombstone.
///
/// The end is that of the log, not the last stable offset: an open transaction of another producer would hide records
/// behind it, so this waits for its end.
pub fn latest(
    properties: Properties,
    clock: &Arc<dyn Clock>,
    target: &TopicPartition,
    key: &[u8],
    deadline: Instant,
) -> Result<Option<Vec<u8>>, Error> {
    let limits = Limits::from_properties(&properties);
    let mut client = Client::unconnected(properties, Arc::clone(clock))?;
    let place = [(target.topic.as_str(), target.partition)];
    let mut bound = |spec| -> Result<i64, Error> {
        let level = IsolationLevel::ReadUncommitted;
        let listed = client.list_offsets(level, spec, &place, deadline)?;
        Ok(listed.first().map_or(0, |one| one.offset))
    };
    let range = (bound(OffsetSpec::Earliest)?, bound(OffsetSpec::Latest)?);
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadCommitted, limits);
    let mut last = None;
    read(&mut fetcher, target, range, clock, deadline, |record| {
        if record.key == Some(key) {
            last = record.value.map(<[u8]>::to_vec);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// Passes the records of `[start, end)` on, until one is enough.
fn read(
    fetcher: &mut Fetcher,
    target: &TopicPartition,
    (start, end): (i64, i64),
    clock: &Arc<dyn Clock>,
    deadline: Instant,
    mut take: impl FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let started = clock.now();
    let topic = target.topic.as_str();
    fetcher.assign(&[Assignment::new(topic, target.partition, start)]);
    let mut memory = Memory::default();
    let mut next = start;
    while next < end {
        for fetched in fetcher.poll(deadline)? {
            let records = match fetched.outcome {
                Outcome::Records(records) => records,
                Outcome::Stopped(stop) => return Err(unreadable(target, stop.to_string())),
            };
            let mut filter = AbortedFilter::new(records.aborted.unwrap_or_default());
            let mut epoch = -1;
            for batch in Batches::new(&records.records).map_while(Result::ok) {
                let damaged =
                    |error: eomirror_batch::BatchError| unreadable(target, error.to_string());
                let judged = filter.judge(&batch).map_err(damaged)?;
                if judged.verdict == Verdict::Data {
                    let all =
                        Records::of(&batch, &mut memory, Sizes::default()).map_err(damaged)?;
                    for record in all {
                        let record = record.map_err(damaged)?;
                        if record.offset >= start && take(&record).is_break() {
                            return Ok(());
                        }
                    }
                }
                (next, epoch) = (next.max(judged.next_offset), batch.leader_epoch());
            }
            fetcher.advance(&fetched.partition, next, epoch);
        }
        if next < end && clock.now() >= deadline {
            return Err(Error::TimedOut {
                what: WHAT,
                waited: clock.now() - started,
                last: format!(
                    "{target} was read to offset {next} of {end}; a transaction may be open"
                ),
            });
        }
    }
    Ok(())
}

fn unreadable(target: &TopicPartition, reason: String) -> Error {
    Error::Unsendable {
        target: target.clone(),
        reason,
    }
}
