use std::net::TcpListener;

use super::{Duration, Error, Instant, Network, Peer, State};
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

/// A host whose first address swallows all that is sent there.
#[test]
fn a_peer_that_never_answers_is_tried_at_its_next_address() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = silent.local_addr().unwrap().to_string();
    let mut network =
        Network::new(Properties::parse([("bootstrap.servers", server)]).unwrap()).unwrap();
    let mut now = Instant::now();
    for turn in 0..3 {
        assert_eq!(network.links[&PEER].turn, turn);
        assert!(matches!(network.open(PEER, now), State::Opening));
        now += Duration::from_secs(60);
        network.service(now);
        now += Duration::from_secs(60);
    }
}
