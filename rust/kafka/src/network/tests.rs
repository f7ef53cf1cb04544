use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Duration, Error, Instant, Network, Peer, State, wait, wait_unless};
use crate::clock::SystemClock;
use crate::properties::Properties;

const PEER: Peer = Peer::Bootstrap(0);

fn resting(network: &mut Network, now: Instant) -> Duration {
    match network.open(PEER, now) {
        State::Resting { until, .. } => until - now,
        state => panic!("{state:?}"),
    }
}

#[test]
fn a_connection_that_breaks_is_no_way_around_a_quota() {
    let text = [("bootstrap.servers", "127.0.0.1:1")];
    let mut network = Network::new(Properties::parse(text).unwrap()).unwrap();
    let now = Instant::now();
    let pause = Duration::from_secs(30);
    network.throttle(PEER, pause, now);
    let error = Error::Unreachable {
        peer: "127.0.0.1:1".to_owned(),
        reason: "reset".to_owned(),
    };
    network.fail(PEER, error, now);
    assert_eq!(resting(&mut network, now), pause);
}

#[test]
fn who_is_not_known_is_not_asked_for_without_end() {
    let text = [
        ("bootstrap.servers", "127.0.0.1:1"),
        ("reconnect.backoff.ms", "0"),
    ];
    let mut network = Network::new(Properties::parse(text).unwrap()).unwrap();
    let now = Instant::now();
    match network.open(Peer::Broker(7), now) {
        State::Resting { until, .. } => assert!(until > now),
        state => panic!("{state:?}"),
    }
}

/// A host whose first address drops all packets.
#[test]
fn a_peer_that_never_answers_is_tried_at_its_next_address() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = silent.local_addr().unwrap().to_string();
    let mut network =
        Network::new(Properties::parse([("bootstrap.servers", server)]).unwrap()).unwrap();
    let mut now = Instant::now();
    for turn in 0..3 {
        assert_eq!(network.peers[&PEER].turn, turn);
        assert!(matches!(network.open(PEER, now), State::Opening));
        now += Duration::from_secs(60);
        network.service(now);
        now += Duration::from_secs(60);
    }
}

/// The first answer of a connection, to `ApiVersions`: no request is supported.
const GREETING: [u8; 16] = [0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0];

#[test]
fn a_peer_that_closes_after_each_handshake_gets_longer_pauses() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let greeted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&greeted);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(&GREETING);
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let mut network =
        Network::new(Properties::parse([("bootstrap.servers", server)]).unwrap()).unwrap();
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let now = Instant::now();
        network.service(now);
        let until = match network.open(PEER, now) {
            State::Resting { until, .. } => until.min(end),
            State::Ready | State::Opening => end,
        };
        wait(&mut [&mut network], &SystemClock, until);
    }
    // with pauses of 0.1, 0.2, 0.4 and 0.8 s in between, spread by a fifth
    let times = greeted.load(Ordering::SeqCst);
    assert!((2..=5).contains(&times), "{times} times");
}

#[test]
fn a_wait_ends_for_what_the_caller_waits_for_besides() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut network =
        Network::new(Properties::parse([("bootstrap.servers", "127.0.0.1:1")]).unwrap()).unwrap();
    let mut waits = |seconds| {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        wait_unless(&mut [&mut network], Some(ours.as_fd()), &SystemClock, until)
    };
    assert!(!waits(0.01));
    theirs.write_all(b"a letter").unwrap();
    let began = Instant::now();
    assert!(waits(30.0));
    assert!(began.elapsed() < Duration::from_secs(10));
}
