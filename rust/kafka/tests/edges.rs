//! The client's reaction to peers that violate the protocol. Each peer is a scripted thread.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use eomirror_kafka::{Client, Clock as _, Error, Kind, Properties, SystemClock};

/// Serves every connection by `script`, and returns the port.
fn peer(script: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            script(stream);
        }
    });
    port
}

/// Answers every request with the same bytes, and leaves the connection open for a while.
fn says(bytes: &'static [u8]) -> u16 {
    peer(move |mut stream| {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(bytes);
        thread::sleep(Duration::from_millis(100));
    })
}

fn connect(port: u16, patience: Duration, more: &[(&str, &str)]) -> (Error, Duration) {
    let server = format!("127.0.0.1:{port}");
    let mut pairs = vec![("bootstrap.servers", server.as_str())];
    pairs.extend(more);
    let properties = Properties::parse(pairs).unwrap();
    let started = Instant::now();
    let error = Client::connect(
        properties,
        Arc::new(SystemClock),
        SystemClock.now() + patience,
    )
    .err()
    .unwrap();
    (error, started.elapsed())
}

const SHORT: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_peer_that_never_answers_costs_the_deadline_and_no_more() {
    let port = peer(|stream| {
        thread::sleep(LONG);
        drop(stream);
    });
    let (error, took) = connect(port, SHORT, &[]);
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert_eq!(error.kind(), Kind::Unreachable);
    assert!(took >= SHORT && took < LONG / 2, "{took:?}");
}

#[test]
fn an_unresolved_name_is_retried_without_a_busy_loop() {
    let nowhere = [
        ("broker.address.family", "v6"),
        ("reconnect.backoff.ms", "0"),
        ("reconnect.backoff.max.ms", "0"),
    ];
    let (error, _) = connect(1, SHORT, &nowhere);
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("no address"), "{error}");
}

#[test]
fn a_port_without_a_listener_is_named_with_the_systems_words() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (error, _) = connect(port, SHORT, &[]);
    let message = error.to_string();
    assert!(
        message.contains(&format!(
            "127.0.0.1:{port}: no connection: Connection refused"
        )),
        "{message}"
    );
}

#[test]
fn a_peer_that_hangs_up_is_tried_again_until_the_deadline() {
    let port = peer(drop);
    let (error, took) = connect(port, SHORT, &[]);
    assert!(
        error.to_string().contains("lost in the handshake"),
        "{error}"
    );
    assert!(took >= SHORT, "{took:?}");
}

#[test]
fn an_answer_beyond_the_limit_is_refused_at_once() {
    let (error, took) = connect(says(b"HTTP/1.1 400 Bad Request\r\n"), LONG, &[]);
    assert!(
        matches!(
            error,
            Error::TooLarge {
                size: 0x4854_5450,
                ..
            }
        ),
        "{error}"
    );
    assert!(took < LONG / 2, "{took:?}");
}

#[test]
fn an_answer_that_makes_no_sense_is_refused_at_once() {
    for (bytes, reason) in [
        (&b"\0\0\0\x04\0\0\0\x09"[..], "it answers another request"),
        (b"\0\0\0\x02\0\0", "it ends too early"),
        (
            b"\0\0\0\x0b\0\0\0\0\0\0\xff\xff\xff\xff\x0f",
            "an array is longer than what holds it",
        ),
    ] {
        let (error, _) = connect(says(bytes), LONG, &[]);
        assert!(
            matches!(&error, Error::Malformed { reason: found, .. } if *found == reason),
            "{error}"
        );
        assert_eq!(error.kind(), Kind::Protocol);
    }
}

#[test]
fn a_listener_that_speaks_tls_is_recognised() {
    let (error, _) = connect(says(&[0x15, 0x03, 0x03, 0, 2, 2, 40]), LONG, &[]);
    assert!(
        error.to_string().contains("the listener speaks TLS"),
        "{error}"
    );
}

#[test]
fn a_listener_that_does_not_speak_tls_is_recognised() {
    let tls = [
        ("security.protocol", "ssl"),
        ("enable.ssl.certificate.verification", "false"),
    ];
    let (error, _) = connect(says(b"\0\0\0\x02\0\0"), LONG, &tls);
    assert!(matches!(error, Error::Tls { .. }), "{error}");
}

#[test]
fn a_malformed_peer_does_not_speak_for_an_unreachable_one() {
    // a port without a listener
    let away = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nonsense = says(b"\0\0\0\x04\0\0\0\x09");
    for servers in [
        format!("127.0.0.1:{nonsense},{away}"),
        format!("{away},127.0.0.1:{nonsense}"),
    ] {
        let properties = Properties::parse([("bootstrap.servers", servers)]).unwrap();
        let deadline = SystemClock.now() + 2 * SHORT;
        let error = Client::connect(properties, Arc::new(SystemClock), deadline)
            .err()
            .unwrap();
        assert_eq!(error.kind(), Kind::Unreachable, "{error}");
    }
}

#[test]
fn one_good_server_is_enough() {
    // the second one is reached only because it is tried while the first one hangs
    let hangs = peer(|stream| {
        thread::sleep(LONG);
        drop(stream);
    });
    let speaks = says(b"\0\0\0\x04\0\0\0\x09");
    let other = format!("127.0.0.1:{speaks}");
    let servers = format!("127.0.0.1:{hangs},{other}");
    let properties = Properties::parse([("bootstrap.servers", servers)]).unwrap();
    let started = Instant::now();
    let error = Client::connect(
        properties,
        Arc::new(SystemClock),
        SystemClock.now() + LONG / 5,
    )
    .err()
    .unwrap();
    assert!(error.to_string().contains(&other), "{error}");
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
}
