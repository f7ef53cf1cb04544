//! Two brokers, one of which may freeze or be gone: clients continue with the other one.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{BrokerId, ListOffsetsResponse, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::client::{Client, OffsetSpec};
use crate::clock::{Clock, SystemClock};
use crate::fetch::{Assignment, Fetcher, Limits};
use crate::properties::Properties;
use crate::protocol::IsolationLevel;
use crate::support::{self, Asked, framed};

const METADATA: i16 = 3;
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;

/// The metadata that brokers report. The mute one answers nothing but `ApiVersions`.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) brokers: Vec<(i32, u16)>,
    pub(crate) leader: i32,
    pub(crate) mute: i32,
}

/// Two brokers, 1 and 2.
pub(crate) struct Two {
    pub(crate) ports: [u16; 2],
    view: Arc<Mutex<View>>,
    /// Broker and API key of each request.
    asked: Receiver<(i32, i16)>,
}

impl Two {
    /// Starts them; the first one leads.
    pub(crate) fn start() -> Self {
        let listeners = [1, 2].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = [0, 1].map(|at: usize| listeners[at].local_addr().unwrap().port());
        let view = Arc::new(Mutex::new(View {
            brokers: vec![(1, ports[0]), (2, ports[1])],
            leader: 1,
            mute: 0,
        }));
        let (sender, asked) = channel();
        for (id, listener) in (1..).zip(listeners) {
            let (view, sender) = (Arc::clone(&view), sender.clone());
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (view, sender) = (Arc::clone(&view), sender.clone());
                    thread::spawn(move || serve(stream, id, &view, &sender));
                }
            });
        }
        Self { ports, view, asked }
    }

    pub(crate) fn client(&self, clock: &Later) -> Client {
        let [one, other] = self.ports;
        let servers = format!("127.0.0.1:{one},127.0.0.1:{other}");
        let properties = Properties::parse([("bootstrap.servers", servers)]).unwrap();
        Client::unconnected(properties, Arc::new(clock.clone())).unwrap()
    }

    pub(crate) fn become_(&self, view: View) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// Freezes the first broker and lets the second one lead. `it_is_named`: the metadata still lists the first one.
    pub(crate) fn stop_the_first(&self, it_is_named: bool) {
        let [one, other] = self.ports;
        let named = [(1, one), (2, other)];
        self.become_(View {
            brokers: named[usize::from(!it_is_named)..].to_vec(),
            leader: 2,
            mute: 1,
        });
    }

    /// Returns the broker of the next request with this key, among those not looked at yet.
    pub(crate) fn who_was_asked(&self, key: i16) -> Option<i32> {
        let found = self.asked.try_iter().find(|(_, asked)| *asked == key);
        found.map(|(broker, _)| broker)
    }

    pub(crate) fn was_asked(&self, what: (i32, i16)) -> bool {
        self.asked.try_iter().any(|asked| asked == what)
    }
}

fn serve(
    mut stream: TcpStream,
    id: i32,
    view: &Mutex<View>,
    sender: &Sender<(i32, i16)>,
) -> Option<()> {
    loop {
        let Asked {
            key,
            version,
            correlation,
            ..
        } = support::next(&mut stream)?;
        sender.send((id, key)).ok()?;
        let View {
            brokers,
            leader,
            mute,
        } = view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = match key {
            18 => {
                let ranges = [
                    (0, 0, 13),
                    (1, 0, 17),
                    (2, 1, 10),
                    (3, 0, 13),
                    (10, 0, 6),
                    (18, 0, 4),
                ];
                framed(correlation, false, &support::versions(&ranges), version)
            }
            METADATA if id != mute => {
                framed(correlation, true, &metadata(&brokers, leader), version)
            }
            LIST_OFFSETS if id != mute => framed(correlation, true, &first_offset(), version),
            // a Fetch waits for records, a Produce for replicas
            _ => continue,
        };
        stream.write_all(&answer).ok()?;
    }
}

fn metadata(brokers: &[(i32, u16)], leader: i32) -> MetadataResponse {
    let mut metadata = support::metadata(0, uuid::Uuid::from_bytes([2; 16]), &[0]);
    metadata.topics[0].partitions[0].leader_id = BrokerId(leader);
    metadata.topics[0].partitions[0].leader_epoch = 2 + leader;
    let there = brokers.iter().map(|(id, port)| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(*id))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port((*port).into())
    });
    metadata.brokers = there.collect();
    metadata
}

fn first_offset() -> ListOffsetsResponse {
    let partition = ListOffsetsPartitionResponse::default().with_offset(7);
    let topic = ListOffsetsTopicResponse::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition]);
    ListOffsetsResponse::default().with_topics(vec![topic])
}

/// The system's clock, which a test sets forward.
#[derive(Clone, Default)]
pub(crate) struct Later(Arc<AtomicU64>);

impl Later {
    pub(crate) fn forward(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for Later {
    fn now(&self) -> Instant {
        SystemClock.now() + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// Repeats until `over`, for at most a bounded time.
pub(crate) fn until(mut over: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !over() {
        assert!(Instant::now() < end, "it does not come");
    }
}

#[test]
fn a_frozen_brokers_partitions_are_read_from_the_new_leader() {
    for it_is_named in [false, true] {
        let (two, clock) = (Two::start(), Later::default());
        let mut client = two.client(&clock);
        let limits = Limits::from_properties(client.network().properties());
        let mut fetcher = Fetcher::new(client, IsolationLevel::ReadCommitted, limits);
        fetcher.assign(&[Assignment::new("t", 0, 0)]);
        let mut go_on = |what| {
            until(|| {
                fetcher
                    .poll(clock.now() + Duration::from_millis(10))
                    .unwrap();
                two.was_asked(what)
            });
        };
        go_on((1, FETCH));
        two.stop_the_first(it_is_named);
        clock.forward(6);
        go_on((2, FETCH));
    }
}

/// The client remembers the leader of an earlier call.
#[test]
fn a_dead_leader_takes_a_part_of_the_deadline_only() {
    let (two, clock) = (Two::start(), Later::default());
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let there = (2, two.ports[1]);
    let end = || clock.now() + Duration::from_secs(20);
    let mut client = two.client(&clock);
    two.become_(View {
        brokers: vec![(1, closed.unwrap().port()), there],
        leader: 1,
        mute: 0,
    });
    client.metadata(&["t"], end()).unwrap();
    two.become_(View {
        brokers: vec![there],
        leader: 2,
        mute: 0,
    });

    let committed = IsolationLevel::ReadCommitted;
    let found = client.list_offsets(committed, OffsetSpec::Latest, &[("t", 0)], end());

    assert_eq!(found.unwrap()[0].offset, 7);
    assert!(two.was_asked((2, LIST_OFFSETS)));
}
