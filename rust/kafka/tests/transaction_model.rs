//! Whole transactions against a small model of the brokers' rules, over a network that loses, repeats and delays
//! messages.
//!
//! The model is Kafka's. A partition's leader accepts a batch that follows the last one, acknowledges a repetition of
//! the last five, and rejects an epoch older than the coordinator's. In protocol V2 the end of a transaction gives the next
//! epoch; in V1 it ends whatever is open with its identity, and a leader rejects a partition that was not added. The
//! cluster's `transaction.version` changes at any time, and the client hears of it later: brokers serve both protocols, and
//! a request tells which one it belongs to.
//! Requests of one connection arrive in order. When the connection is cut, its requests arrive later, in any order,
//! once, twice or never. At the end, committed readers must see exactly the batches that were reported to the writer.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use eomirror_kafka::error_code::ErrorCode;
use eomirror_kafka::transaction_state::{
    Ask, Event, Identity, InFlight, ProducerState, Protocol, SourceRange, Ticket,
};
use proptest::prelude::*;

const PARTITIONS: usize = 2;
const EPOCHS: i16 = 4;

/// A batch on the wire.
#[derive(Debug, Clone, Copy)]
struct Wire {
    identity: Identity,
    sequence: i32,
    number: u32,
}

#[derive(Debug, Clone)]
enum Message {
    Produce {
        protocol: Protocol,
        ticket: Ticket,
        batches: Vec<(usize, Wire)>,
    },
    End {
        protocol: Protocol,
        identity: Identity,
        commit: bool,
    },
    Add {
        identity: Identity,
        partitions: Vec<usize>,
    },
    Init(Identity),
}

#[derive(Debug, Clone)]
enum Reply {
    Produced(Ticket, Vec<(usize, ErrorCode, i64)>),
    Ended(ErrorCode, Identity),
    Added(ErrorCode, Vec<usize>),
    Initialized(ErrorCode, Identity),
}

/// Records per batch; more than one, so that sequence numbers differ from batch numbers.
const RECORDS: i32 = 3;

#[derive(Debug, Default, Clone)]
struct Log {
    /// Epoch's identity, batch number and fate of each batch, in the order of the log.
    batches: Vec<(Identity, u32, Option<bool>)>,
    /// The last five of the current identity: sequence and place.
    last: VecDeque<(Identity, i32, i64)>,
    moved: bool,
}

/// Leaders and the coordinator.
#[derive(Debug)]
struct Brokers {
    /// Partitions of the open transaction that were added by request.
    added: BTreeSet<usize>,
    current: Identity,
    /// The previous identity, and how its transaction ended.
    before: Option<(Identity, bool)>,
    open: bool,
    logs: Vec<Log>,
}

impl Brokers {
    fn append(&mut self, protocol: Protocol, partition: usize, wire: Wire) -> (ErrorCode, i64) {
        if std::mem::take(&mut self.logs[partition].moved) {
            return (ErrorCode(6), -1);
        }
        // an old producer id is an old producer
        if wire.identity != self.current {
            return (ErrorCode(47), -1);
        }
        if protocol == Protocol::V1 && !self.added.contains(&partition) {
            return (ErrorCode(48), -1);
        }
        let log = &mut self.logs[partition];
        log.last
            .retain(|(identity, _, _)| *identity == wire.identity);
        if let Some((_, _, at)) = log.last.iter().find(|last| last.1 == wire.sequence) {
            return (ErrorCode(0), *at);
        }
        let expected = log.last.back().map_or(0, |last| last.1 + RECORDS);
        // also one that is in the log already, and forgotten
        if wire.sequence != expected {
            return (ErrorCode(45), -1);
        }
        let at = i64::try_from(log.batches.len()).unwrap();
        log.batches.push((wire.identity, wire.number, None));
        log.last.push_back((wire.identity, wire.sequence, at));
        if log.last.len() > 5 {
            log.last.pop_front();
        }
        self.open = true;
        (ErrorCode::NONE, at)
    }

    fn end(
        &mut self,
        protocol: Protocol,
        identity: Identity,
        commit: bool,
    ) -> (ErrorCode, Identity) {
        if protocol == Protocol::V1 {
            return (self.end_v1(identity, commit), self.current);
        }
        if let Some((_, committed)) = self.before.filter(|(before, _)| *before == identity) {
            let code = ErrorCode(if commit == committed { 0 } else { 48 });
            return (code, self.current);
        }
        if identity != self.current {
            return (ErrorCode(90), self.current);
        }
        if commit && !self.open {
            return (ErrorCode(48), self.current);
        }
        self.decide(identity, commit);
        self.current = next(identity);
        (ErrorCode::NONE, self.current)
    }

    /// Writes the markers of the open transaction.
    fn decide(&mut self, identity: Identity, commit: bool) {
        for log in &mut self.logs {
            for (owner, _, fate) in &mut log.batches {
                if *owner == identity && fate.is_none() {
                    *fate = Some(commit);
                }
            }
        }
        self.open = false;
        self.added.clear();
        self.before = Some((identity, commit));
    }

    /// Ends whatever is open with this identity, however old the request is.
    fn end_v1(&mut self, identity: Identity, commit: bool) -> ErrorCode {
        if identity != self.current {
            return ErrorCode(90);
        }
        if !self.open {
            let same = self.before == Some((identity, commit));
            return ErrorCode(if same { 0 } else { 48 });
        }
        self.decide(identity, commit);
        ErrorCode::NONE
    }

    fn add(&mut self, identity: Identity, partitions: &[usize]) -> ErrorCode {
        if identity != self.current {
            return ErrorCode(90);
        }
        self.open = true;
        self.added.extend(partitions);
        ErrorCode::NONE
    }

    fn initialize(&mut self, previous: Identity) -> (ErrorCode, Identity) {
        if self.before.is_some_and(|(before, _)| before == previous)
            && self.current == next(previous)
        {
            // a repetition
            return (ErrorCode::NONE, self.current);
        }
        if previous != self.current {
            return (ErrorCode(90), self.current);
        }
        if self.open {
            // partitions of a late request: there is no record in them
            self.decide(previous, false);
        }
        self.before = Some((previous, false));
        self.current = next(previous);
        (ErrorCode::NONE, self.current)
    }

    fn carry_out(&mut self, message: &Message) -> Reply {
        match message {
            Message::Produce {
                protocol,
                ticket,
                batches,
            } => {
                let said = batches.iter().map(|(partition, wire)| {
                    let (code, at) = self.append(*protocol, *partition, *wire);
                    (*partition, code, at)
                });
                Reply::Produced(*ticket, said.collect())
            }
            Message::End {
                protocol,
                identity,
                commit,
            } => {
                let (code, next) = self.end(*protocol, *identity, *commit);
                Reply::Ended(code, next)
            }
            Message::Add {
                identity,
                partitions,
            } => Reply::Added(self.add(*identity, partitions), partitions.clone()),
            Message::Init(previous) => {
                let (code, identity) = self.initialize(*previous);
                Reply::Initialized(code, identity)
            }
        }
    }

    fn visible(&self, partition: usize) -> Vec<u32> {
        let batches = self.logs[partition].batches.iter();
        batches
            .filter(|(_, _, fate)| *fate == Some(true))
            .map(|(_, number, _)| *number)
            .collect()
    }
}

fn next(identity: Identity) -> Identity {
    if identity.epoch + 1 >= EPOCHS {
        return Identity {
            producer_id: identity.producer_id + 1,
            epoch: 0,
        };
    }
    Identity {
        epoch: identity.epoch + 1,
        ..identity
    }
}

/// Event of the schedule.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write(usize),
    Send,
    /// The broker takes the next request of the connection and sends its response.
    Take,
    /// The next response arrives.
    Answer,
    /// The connection is cut: requests on it may still arrive, responses do not.
    Cut,
    /// A message of a cut connection arrives; the flag keeps it to arrive again.
    Straggle(usize, bool),
    /// A leader once denies its leadership.
    Move(usize),
    Commit,
    Abort,
    /// The client hears of another `transaction.version`.
    Feature(Protocol),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        9 => (0..PARTITIONS).prop_map(Step::Write),
        8 => Just(Step::Send),
        8 => Just(Step::Take),
        8 => Just(Step::Answer),
        2 => Just(Step::Cut),
        4 => (0_usize..20, any::<bool>()).prop_map(|(at, again)| Step::Straggle(at, again)),
        1 => (0..PARTITIONS).prop_map(Step::Move),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => prop_oneof![Just(Protocol::V1), Just(Protocol::V2)].prop_map(Step::Feature),
    ]
}

#[derive(Debug)]
struct World {
    now: Instant,
    coordinator: ProducerState,
    sequences: InFlight<usize, Wire>,
    brokers: Brokers,
    /// Requests on the way, in order; each with the response that the client awaits.
    up: VecDeque<Message>,
    down: VecDeque<Reply>,
    stragglers: Vec<Message>,
    outstanding: Vec<Ticket>,
    next: u32,
    /// Batches of the open transaction, and how many of them were acknowledged.
    written: Vec<(usize, u32)>,
    acknowledged: BTreeMap<u32, Option<i64>>,
    /// Batches that must be visible, per partition.
    expected: Vec<Vec<u32>>,
    ending: bool,
    /// Partitions that the client knows to be in the transaction.
    added: BTreeSet<usize>,
    /// Protocol of the next transaction.
    level: Protocol,
}

impl World {
    fn new(protocol: Protocol) -> Self {
        let now = Instant::now();
        let first = Identity {
            producer_id: 1,
            epoch: 0,
        };
        let mut coordinator = ProducerState::new(protocol);
        coordinator.asked();
        coordinator.found(ErrorCode(0), 1, now);
        coordinator.asked();
        coordinator.initialized(ErrorCode(0), first, now);
        coordinator.begin().unwrap();
        Self {
            now,
            coordinator,
            sequences: InFlight::new(2_000),
            brokers: Brokers {
                added: BTreeSet::new(),
                current: first,
                before: None,
                open: false,
                logs: vec![Log::default(); PARTITIONS],
            },
            up: VecDeque::new(),
            down: VecDeque::new(),
            stragglers: Vec::new(),
            outstanding: Vec::new(),
            next: 0,
            written: Vec::new(),
            acknowledged: BTreeMap::new(),
            expected: vec![Vec::new(); PARTITIONS],
            ending: false,
            added: BTreeSet::new(),
            level: protocol,
        }
    }

    fn begin(&mut self) {
        self.coordinator.change_protocol(self.level);
        self.coordinator.begin().unwrap();
    }

    fn happen(&mut self, step: Step) {
        // backoffs are not under test here
        self.now += Duration::from_secs(1);
        match step {
            Step::Write(partition) => {
                let Some(identity) = self.coordinator.writer() else {
                    return;
                };
                let number = self.next;
                self.next += 1;
                let wire = Wire {
                    identity,
                    sequence: self.sequences.next_sequence(&partition),
                    number,
                };
                let offset = i64::from(number);
                let source = SourceRange {
                    partition: 0,
                    first: offset,
                    last: offset,
                };
                self.sequences
                    .push(&partition, wire, 1_000, RECORDS, source);
                self.written.push((partition, number));
            }
            Step::Send => self.send(),
            Step::Take => {
                if let Some(message) = self.up.pop_front() {
                    let reply = self.brokers.carry_out(&message);
                    self.down.push_back(reply);
                }
            }
            Step::Answer => {
                if let Some(reply) = self.down.pop_front() {
                    self.hear(reply);
                }
            }
            Step::Cut => self.cut(),
            Step::Straggle(at, again) => {
                if !self.stragglers.is_empty() {
                    let at = at % self.stragglers.len();
                    let message = self.stragglers[at].clone();
                    if !again {
                        self.stragglers.remove(at);
                    }
                    self.brokers.carry_out(&message);
                }
            }
            Step::Move(partition) => self.brokers.logs[partition].moved = true,
            Step::Commit => {
                if self.is_done() {
                    let event = self.coordinator.commit().unwrap();
                    self.ending = event.is_none();
                    if event.is_some() {
                        self.begin();
                    }
                }
            }
            Step::Abort => {
                if !self.ending && self.coordinator.writer().is_some() {
                    self.coordinator.abort().unwrap();
                    self.ending = true;
                }
            }
            Step::Feature(protocol) => {
                self.level = protocol;
                // in the middle of a transaction nothing changes
                if self.coordinator.ready_identity().is_none() {
                    let before = self.coordinator.protocol();
                    self.coordinator.change_protocol(protocol);
                    assert_eq!(self.coordinator.protocol(), before);
                }
            }
        }
    }

    fn send(&mut self) {
        let protocol = self.coordinator.protocol();
        let v1 = protocol == Protocol::V1;
        let unadded = self
            .sequences
            .unsettled()
            .filter(|at| v1 && !self.added.contains(at));
        let unadded: Vec<usize> = unadded.copied().collect();
        self.coordinator.add(!unadded.is_empty());
        match self.coordinator.wants(self.now) {
            Some(Ask::Find) => {
                self.coordinator.asked();
                self.coordinator.found(ErrorCode(0), 1, self.now);
                self.now += Duration::from_secs(1);
            }
            Some(Ask::End { identity, commit }) => {
                self.coordinator.asked();
                self.up.push_back(Message::End {
                    protocol,
                    identity,
                    commit,
                });
            }
            Some(Ask::Add { identity }) => {
                self.coordinator.asked();
                self.up.push_back(Message::Add {
                    identity,
                    partitions: unadded,
                });
            }
            Some(Ask::Init {
                previous: Some(previous),
            }) if v1 => {
                self.coordinator.asked();
                self.up.push_back(Message::Init(previous));
            }
            Some(ask @ Ask::Init { .. }) => panic!("{ask:?} in a world without timeouts"),
            None => {}
        }
        if self.coordinator.writer().is_none() {
            return;
        }
        let added = &self.added;
        let leader = |at: &usize| (!v1 || added.contains(at)).then_some(1);
        if let Some(outgoing) = self.sequences.plan(1, leader, self.now) {
            self.coordinator.wrote();
            self.outstanding.push(outgoing.ticket);
            self.up.push_back(Message::Produce {
                protocol,
                ticket: outgoing.ticket,
                batches: outgoing.batches,
            });
        }
    }

    fn hear(&mut self, reply: Reply) {
        match reply {
            Reply::Produced(ticket, said) => {
                self.outstanding.retain(|one| *one != ticket);
                let answered = self.sequences.answered(ticket, said, self.now);
                for one in answered.acknowledged {
                    let number = u32::try_from(one.source.first).unwrap();
                    assert!(
                        self.acknowledged.insert(number, one.base_offset).is_none(),
                        "batch {number} is acknowledged twice"
                    );
                }
                assert_eq!(answered.refused, None, "nothing here deserves a refusal");
            }
            Reply::Ended(code, next) => match self.coordinator.ended(code, next, self.now) {
                Some(Event::Committed) => self.over(true),
                Some(Event::Aborted) => self.over(false),
                Some(event) => panic!("{event:?}"),
                None => {}
            },
            Reply::Added(code, partitions) => {
                if code.is_none() && self.coordinator.writer().is_some() {
                    self.added.extend(partitions);
                }
                assert_eq!(self.coordinator.added(code, self.now), None);
            }
            Reply::Initialized(code, identity) => {
                match self.coordinator.initialized(code, identity, self.now) {
                    Some(Event::Initialized) => self.begin(),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn over(&mut self, committed: bool) {
        if committed {
            for (partition, number) in &self.written {
                let at = self.acknowledged[number];
                if let Some(at) = at {
                    let place = usize::try_from(at).unwrap();
                    assert_eq!(self.brokers.logs[*partition].batches[place].1, *number);
                }
                self.expected[*partition].push(*number);
            }
        }
        self.written.clear();
        self.acknowledged.clear();
        self.sequences.restart();
        self.added.clear();
        self.ending = false;
        if self.coordinator.protocol() == Protocol::V2 {
            self.begin();
        }
    }

    fn cut(&mut self) {
        self.stragglers.extend(self.up.drain(..));
        self.down.clear();
        for ticket in std::mem::take(&mut self.outstanding) {
            self.sequences.lost(ticket, self.now);
        }
        self.coordinator.lost(self.now);
    }

    /// Delivers everything without losses.
    fn finish(&mut self) {
        for _ in 0..1_000 {
            if self.is_done() {
                break;
            }
            for step in [Step::Send, Step::Take, Step::Answer] {
                self.happen(step);
            }
        }
        assert!(self.is_done(), "{self:?}");
    }

    fn is_done(&self) -> bool {
        self.sequences.is_settled() && !self.ending && self.coordinator.writer().is_some()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn committed_readers_see_what_the_writer_was_told(
        v1 in any::<bool>(), steps in proptest::collection::vec(step(), 0..200)
    ) {
        let mut world = World::new(if v1 { Protocol::V1 } else { Protocol::V2 });
        for step in steps {
            world.happen(step);
        }
        world.finish();
        world.happen(Step::Commit);
        world.finish();
        for message in std::mem::take(&mut world.stragglers) {
            // however late, it changes nothing
            world.brokers.carry_out(&message);
        }
        for partition in 0..PARTITIONS {
            prop_assert_eq!(&world.brokers.visible(partition), &world.expected[partition]);
        }
    }
}
