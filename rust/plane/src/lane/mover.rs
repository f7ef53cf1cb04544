//! The lane itself, and the pump. The source's side is [`super::consumer`], the target's [`super::target`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_core::batch::AbortedTransaction;
use eomirror_core::relay::{Relay, Relayed};
use eomirror_core::transaction::SourceRange;

use super::account::Book;
use super::failure::Failure;
use super::route::Route;
use super::source::Source;
use super::target::Target;
use super::{Pumped, Settings};
use eomirror_kafka::{
    Acknowledgement, Client, Clock, Error, FetchedPartition, Fetcher, IsolationLevel, Limits,
    Throttled, TopicPartition, wait,
};

/// How long to wait for the first record of an empty [`Lane::pump`]: its multiple is the cost of a caught-up commit.
const IDLE: Duration = Duration::from_millis(5);

/// Up to so many bytes wait for the state records, and go in one request with them.
const LINGER: u64 = 64 * 1024;

/// Answers of full size that are at hand at most, the one that is being sent included.
const AT_HAND: u64 = 3;

/// One answer of a partition, ready to be sent.
pub(super) struct Ready {
    pub(super) answer: Answer,
    pub(super) relayed: Relayed,
    /// The producer id that its headers carry as a mark.
    pub(super) producer_id: Option<i64>,
}

/// What was fetched of one partition, from an offset on.
pub(super) struct Answer {
    pub(super) number: u32,
    /// The position that it was fetched for.
    pub(super) offset: i64,
    pub(super) began: i64,
    /// It begins with the batch before the position, to be compared with what was mirrored.
    pub(super) compares: bool,
    pub(super) bytes: Bytes,
    pub(super) aborted: Vec<AbortedTransaction>,
}

/// Moves one lane's records; see the module.
pub struct Lane {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) fetcher: Fetcher,
    pub(super) target: Target,
    pub(super) relay: Relay,
    pub(super) routes: BTreeMap<String, Arc<Route>>,
    /// By number; a number is never used again.
    pub(super) sources: Vec<Source>,
    pub(super) numbers: BTreeMap<TopicPartition, u32>,
    /// Sources whose next offset moved since the last commit.
    pub(super) moved: BTreeSet<u32>,
    /// Sources that are known to have more than was taken.
    pub(super) behind: BTreeSet<u32>,
    pub(super) at_hand: VecDeque<FetchedPartition>,
    /// The next answer that holds something to mirror. It may wait while a transaction is ended, and while partitions are
    /// added; its own is fetched from behind it only once it is sent.
    pub(super) ready: Option<Ready>,
    /// Why the next answer cannot be sent; told inside a transaction that holds nothing yet.
    pub(super) blocked: Option<Failure>,
    pub(super) books: BTreeMap<u32, Book>,
    /// Next offsets as they were told with the settled accounts.
    pub(super) settled: BTreeMap<u32, i64>,
    /// Target partitions: the offset that our next record gets, once the settled transaction is committed.
    pub(super) written: BTreeMap<TopicPartition, i64>,
    /// Likewise, of what is committed by this producer.
    pub(super) next_target: BTreeMap<TopicPartition, i64>,
    /// Bytes that went into the open transaction.
    pub(super) used: u64,
    /// A partition of it has as many runs as one should have.
    pub(super) crowded: bool,
    /// What is at hand came some time ago, and there may be more by now.
    pub(super) stale: bool,
    /// What is in the open transaction waits for the state records.
    pub(super) lingering: bool,
    /// How the target held producers back that are gone.
    pub(super) throttled_before: Throttled,
}

impl Lane {
    /// A lane that has no producer and fetches nothing yet. Reads certificates, connects nowhere.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let client = Client::unconnected(settings.source.clone(), Arc::clone(&clock))
            .map_err(Failure::from)?;
        let mut limits = Limits::from_properties(&settings.source);
        limits.budget = limits.budget.min(settings.fetch_bytes);
        let most = i32::try_from(settings.fetch_bytes).unwrap_or(i32::MAX);
        limits.answer_bytes = limits.answer_bytes.min(most);
        // a lane takes all that it is given, sooner or later
        limits.patience_bytes = LINGER;
        Ok(Self {
            fetcher: Fetcher::new(client, IsolationLevel::ReadCommitted, limits),
            relay: Relay::new(settings.records),
            settings,
            clock,
            target: Target::None,
            routes: BTreeMap::new(),
            sources: Vec::new(),
            numbers: BTreeMap::new(),
            moved: BTreeSet::new(),
            behind: BTreeSet::new(),
            at_hand: VecDeque::new(),
            ready: None,
            blocked: None,
            books: BTreeMap::new(),
            settled: BTreeMap::new(),
            written: BTreeMap::new(),
            next_target: BTreeMap::new(),
            used: 0,
            crowded: false,
            stale: false,
            lingering: false,
            throttled_before: Throttled::default(),
        })
    }

    /// Sends what is at hand in the open transaction, until it holds `most` bytes, until `until`, or until nothing is
    /// left.
    pub fn pump(&mut self, until: Instant, most: u64) -> Result<Pumped, Failure> {
        let mut pumped = Pumped::default();
        let mut idle = (self.clock.now() + IDLE).min(until);
        let mut stale = std::mem::take(&mut self.stale);
        loop {
            self.step()?;
            if let Some(at) = self
                .waits_for_markers()?
                .filter(|_| self.clock.now() < until)
            {
                self.rest(at.min(until))?;
                idle = (self.clock.now() + IDLE).min(until);
                stale = true;
                continue;
            }
            while self.used < most && !self.crowded && self.has_room()? {
                self.prepare()?;
                // what this transaction holds already is as good as ever: it is committed first
                if self.books.is_empty() {
                    if let Some(failure) = self.blocked.take() {
                        return Err(failure);
                    }
                }
                let Some(ready) = self.ready.take() else {
                    break;
                };
                if let Some(ready) = self.as_sent(ready) {
                    self.send(ready, &mut pumped)?;
                }
            }
            self.lingering = self.used <= LINGER && self.has_room()?;
            if stale && self.lingering && pumped.records > 0 {
                stale = false;
                self.fetcher.hurry();
            }
            self.step()?;
            let now = self.clock.now();
            let left = self.ready.is_some() || !self.at_hand.is_empty();
            let caught_up = !left && self.behind.is_empty() && !self.fetcher.has_fetched();
            pumped.drained = caught_up && (!self.fetcher.is_hurrying() || now >= idle);
            pumped.full = self.used >= most || self.crowded || self.blocked.is_some();
            if pumped.full || now >= until {
                return Ok(pumped);
            }
            // what has to wait for the coordinator's word takes along what comes meanwhile
            let may_go = !self.lingering || self.producer()?.may_write();
            if pumped.drained && may_go && (pumped.records > 0 || now >= idle) {
                return Ok(pumped);
            }
            let patience = if caught_up && now < idle { idle } else { until };
            if !self.fetcher.has_fetched() || !self.has_room()? {
                self.rest(patience)?;
            }
        }
    }

    // -- inside ----------------------------------------------------------------------------------

    /// Whether more may go on its way to the target.
    ///
    /// A batch that is passed on keeps the whole answer that it came in, with all that was dropped of it and all that the
    /// target has taken already. So the batches' own bytes are not enough to look at: where one in a hundred is mirrored,
    /// or one partition of a hundred has no leader, they hold a hundred times as much. Where nothing is on its way there
    /// is nothing to wait for.
    fn has_room(&mut self) -> Result<bool, Failure> {
        let held = self.fetcher.network().held_bytes() as u64;
        let answers = self.settings.fetch_bytes.saturating_mul(AT_HAND);
        let most = answers.saturating_add(self.settings.producer.budget as u64);
        let producer = self.producer()?;
        Ok(producer.room() > 0 && (held <= most || producer.is_settled()))
    }

    /// Until when nothing of the open transaction can go, as the markers of the last one are being written, and little is
    /// there to go.
    ///
    /// Nothing is looked at before: what comes until then goes along, and of a partition that gets records all the time
    /// it is one batch, and not one from each look, of which each takes a Produce of its own.
    fn waits_for_markers(&mut self) -> Result<Option<Instant>, Failure> {
        let unsent = self.used == 0 || self.lingering;
        let little = self.fetcher.held_bytes() <= LINGER;
        Ok(self.producer()?.waits_until().filter(|_| unsent && little))
    }

    /// Does what can be done without waiting, on both sides.
    pub(super) fn step(&mut self) -> Result<(), Failure> {
        if let Err(error) = self.fetcher.step() {
            return Err(self.failure(&error));
        }
        let Target::Open(producer) = &mut self.target else {
            return Ok(());
        };
        producer.hold(self.lingering);
        let stepped = producer.step();
        let acknowledged = producer.take_acknowledged();
        self.book(acknowledged);
        stepped.map_err(|error| self.failure(&error))
    }

    /// Waits until either side can go on, or until `until`.
    pub(super) fn rest(&mut self, until: Instant) -> Result<(), Failure> {
        let clock = Arc::clone(&self.clock);
        let Target::Open(producer) = &mut self.target else {
            return Err(misuse("a wait"));
        };
        let until = self.fetcher.wakes_at().map_or(until, |at| at.min(until));
        let until = producer.wakes_at().map_or(until, |at| at.min(until));
        let networks = &mut [self.fetcher.network(), producer.network()];
        wait(networks, &*clock, until);
        Ok(())
    }

    fn book(&mut self, acknowledged: Vec<Acknowledgement>) {
        for one in acknowledged {
            if let Some(book) = self.books.get_mut(&one.source.partition) {
                book.acknowledged(one.source.first, one.base_offset);
            }
        }
    }

    /// The answer as the open transaction sends it. The end of a transaction may give another producer id, which the
    /// headers that were written before do not name: their records would be taken for copies that an application made.
    pub(super) fn as_sent(&mut self, ready: Ready) -> Option<Ready> {
        let route = &self.sources[ready.answer.number as usize].route;
        if route.treatment.writes_header() && ready.producer_id != self.producer_id() {
            self.consider(ready.answer);
            return self.ready.take();
        }
        Some(ready)
    }

    /// Sends an answer of a partition, all of it.
    fn send(&mut self, mut ready: Ready, pumped: &mut Pumped) -> Result<(), Failure> {
        let Answer { number, began, .. } = ready.answer;
        let source = &self.sources[number as usize];
        let book = self.books.entry(number).or_insert_with(|| Book::new(began));
        let Target::Open(producer) = &mut self.target else {
            return Err(misuse("pump"));
        };
        for batch in std::mem::take(&mut ready.relayed.batches) {
            let (count, size) = (batch.count(), batch.size());
            let range = SourceRange {
                partition: number,
                first: batch.first_offset(),
                last: batch.last_offset(),
            };
            book.sent(batch.runs(), size);
            let sent = producer.send_relayed(&source.target, batch, &ready.answer.bytes, range);
            if let Err(error) = sent {
                return Err(self.failure(&error));
            }
            pumped.records += u64::from(count.unsigned_abs());
            pumped.bytes += size as u64;
            self.used += size as u64;
        }
        let relayed = &ready.relayed;
        book.fetched(&relayed.books, relayed.next_position, relayed.max_timestamp);
        self.crowded |= book.is_full();
        self.reach(number, relayed);
        Ok(())
    }

    pub(super) fn failure(&self, error: &Error) -> Failure {
        Failure::of_plane(error, |number| {
            let source = self.sources.get(usize::try_from(number).ok()?)?;
            Some(source.partition.clone())
        })
    }
}

pub(super) fn misuse(call: &str) -> Failure {
    Failure::misused(&format!("{call} does not fit: the lane is not open"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Lane, Settings};
    use crate::lane::target::Target;
    use eomirror_kafka::{
        Client, ProducerSettings, Properties, SystemClock, TransactionalProducer,
    };

    /// A lane that fetches nothing, and whose target has closed the connection.
    fn left_by_its_target() -> Lane {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let properties = Properties::parse([("bootstrap.servers", server)]).unwrap();
        let producer = ProducerSettings::new("id", &properties);
        let settings = Settings::new(properties.clone(), properties.clone(), producer.clone());
        let mut lane = Lane::new(settings, Arc::new(SystemClock)).unwrap();
        let client = Client::unconnected(properties, Arc::clone(&lane.clock)).unwrap();
        let mut producer = TransactionalProducer::new(client, producer);
        producer.step().unwrap();
        drop(listener.accept().unwrap());
        lane.target = Target::Open(Box::new(producer));
        lane
    }

    #[test]
    fn a_target_that_hangs_up_while_records_linger_does_not_keep_the_lane_awake() {
        let mut lane = left_by_its_target();
        lane.lingering = true;
        let until = lane.clock.now() + Duration::from_millis(100);
        let mut waits = 0;
        while lane.clock.now() < until {
            lane.rest(until).unwrap();
            lane.step().unwrap();
            waits += 1;
        }
        assert!(waits < 20, "it was woken {waits} times");
    }
}
