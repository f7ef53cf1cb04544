use std::sync::Arc;
use std::time::Duration;

use super::{Mechanism, Properties, Trust, Verification};
use crate::error::{Error, Kind};
use crate::oauth::{Token, TokenSource};

fn parse(pairs: &[(&str, &str)]) -> Result<Properties, Error> {
    Properties::parse(pairs.iter().copied())
}

fn with_servers(pairs: &[(&str, &str)]) -> Result<Properties, Error> {
    let mut all = vec![("bootstrap.servers", "h:1")];
    all.extend(pairs);
    parse(&all)
}

#[test]
fn what_is_not_said_has_librdkafkas_default() {
    let properties = with_servers(&[]).unwrap();
    assert_eq!(properties.request_timeout, Duration::from_secs(60));
    assert_eq!(properties.fetch.max_bytes, 52_428_800);
    assert_eq!(properties.fetch.partition_bytes, 1_048_576);
    assert_eq!(properties.largest_answer, 100_000_000);
    assert!(properties.tls.is_none() && properties.sasl.is_none());
}

#[test]
fn servers_are_read_in_all_their_forms() {
    let servers =
        |text| parse(&[("bootstrap.servers", text)]).map(|properties| properties.bootstrap);
    assert_eq!(
        servers("a:1, b ,SASL_SSL://c:3,[::1]:4").unwrap(),
        [
            ("a".to_owned(), 1),
            ("b".to_owned(), 9092),
            ("c".to_owned(), 3),
            ("::1".to_owned(), 4)
        ]
    );
    for wrong in ["", " , ", "a:", "a:x", "a:70000", ":1", "::1:4"] {
        assert_eq!(
            servers(wrong).unwrap_err().kind(),
            Kind::Configuration,
            "{wrong}"
        );
    }
}

#[test]
fn everything_that_cannot_be_honoured_is_named_at_once() {
    let error = with_servers(&[
        ("ssl.keystore.location", "/k.p12"),
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanisms", "GSSAPI"),
        ("made.up", "1"),
    ])
    .unwrap_err();
    assert_eq!(error.kind(), Kind::Unhonoured);
    let message = error.to_string();
    assert!(
        message.starts_with("native client cannot honour ssl.keystore.location: it reads PEM"),
        "{message}"
    );
    for name in ["made.up: ", "sasl.mechanism: Kerberos"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn sasl_without_a_mechanism_means_kerberos_and_is_refused() {
    let error = with_servers(&[("security.protocol", "sasl_plaintext")]).unwrap_err();
    assert!(
        error.to_string().contains("sasl.mechanism: Kerberos"),
        "{error}"
    );
}

#[test]
fn what_does_not_matter_to_a_reader_is_ignored_with_its_reason() {
    let properties = with_servers(&[
        ("linger.ms", "5"),
        ("transactional.id", "x"),
        ("sasl.oauthbearer.scope", "y"),
    ])
    .unwrap();
    let names: Vec<&str> = properties
        .ignored()
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        names,
        ["linger.ms", "transactional.id", "sasl.oauthbearer.scope"]
    );
    assert!(
        properties.ignored()[0]
            .1
            .starts_with("batches are written as they came")
    );
}

#[test]
fn metadata_backoff_follows_librdkafkas_properties() {
    for (pairs, first, longest) in [
        (&[][..], 100, 1000),
        (&[("retry.backoff.ms", "7")], 7, 1000),
        (
            &[
                ("retry.backoff.ms", "7"),
                ("topic.metadata.refresh.fast.interval.ms", "250"),
                ("retry.backoff.max.ms", "9000"),
            ],
            250,
            9000,
        ),
    ] {
        let backoff = with_servers(pairs).unwrap().metadata_backoff;
        assert_eq!(backoff.first, Duration::from_millis(first));
        assert_eq!(backoff.longest, Duration::from_millis(longest));
    }
}

#[test]
fn secrets_are_never_shown() {
    let properties = with_servers(&[
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "scram-sha-512"),
        ("sasl.username", "user"),
        ("sasl.password", " hunter2 "),
        ("ssl.certificate.pem", "CERT"),
        ("ssl.key.pem", "hunter2"),
    ])
    .unwrap();
    assert!(!format!("{properties:?}").contains("hunter2"));
    let sasl = properties.sasl.unwrap();
    assert_eq!(sasl.password.reveal(), " hunter2 ");
    assert_eq!(sasl.mechanism, Mechanism::ScramSha512);
    assert_eq!(format!("{} {:?}", sasl.password, sasl.password), "*** ***");
}

#[test]
fn verification_is_full_unless_it_is_turned_off() {
    let verification = |pairs: &[(&str, &str)]| {
        let mut all = vec![("security.protocol", "ssl")];
        all.extend(pairs);
        with_servers(&all).unwrap().tls.unwrap().verification
    };
    assert_eq!(verification(&[]), Verification::Full);
    assert_eq!(
        verification(&[("ssl.endpoint.identification.algorithm", "none")]),
        Verification::Chain
    );
    assert_eq!(
        verification(&[("enable.ssl.certificate.verification", "false")]),
        Verification::Nothing
    );
}

#[test]
fn without_authorities_the_system_is_trusted() {
    let trust = |pairs: &[(&str, &str)]| {
        let mut all = vec![("security.protocol", "ssl")];
        all.extend(pairs);
        with_servers(&all).unwrap().tls.unwrap().trust
    };
    assert_eq!(trust(&[]), Trust::System);
    assert_eq!(trust(&[("ssl.ca.location", "probe")]), Trust::System);
    assert!(matches!(
        trust(&[("ssl.ca.location", "/ca.pem")]),
        Trust::Authorities(_)
    ));
}

#[test]
fn wrong_values_are_named() {
    for (name, value) in [
        ("security.protocol", "tls"),
        ("socket.timeout.ms", "soon"),
        ("fetch.min.bytes", "0"),
        ("receive.message.max.bytes", "1000"),
        ("broker.address.family", "v5"),
        ("socket.keepalive.enable", "maybe"),
    ] {
        let Err(Error::BadProperty { property, .. }) = with_servers(&[(name, value)]) else {
            panic!("{name}={value} was taken");
        };
        assert_eq!(property, name);
    }
    let half = with_servers(&[
        ("security.protocol", "ssl"),
        ("ssl.certificate.pem", "CERT"),
    ]);
    assert!(
        half.unwrap_err()
            .to_string()
            .contains("needs its private key")
    );
    let anonymous = with_servers(&[
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "PLAIN"),
    ]);
    assert!(anonymous.unwrap_err().to_string().contains("sasl.username"));
}

/// A source of fixed tokens.
struct Given;

impl TokenSource for Given {
    fn token(&self) -> Result<Token, String> {
        Err("never asked".to_owned())
    }
}

#[test]
fn tokens_have_a_source_are_unsecured_or_are_refused() {
    let bearer = [
        ("bootstrap.servers", "h:1"),
        ("security.protocol", "sasl_ssl"),
        ("sasl.mechanism", "OAUTHBEARER"),
    ];
    let with = |more: &[(&'static str, &'static str)]| {
        let mut all = bearer.to_vec();
        all.extend(more);
        parse(&all).map_err(|error| error.to_string())
    };
    let unsecured = ("enable.sasl.oauthbearer.unsecure.jwt", "true");
    assert!(
        with(&[])
            .unwrap_err()
            .contains("sasl.mechanism: it has no token source")
    );
    let oidc = with(&[unsecured, ("sasl.oauthbearer.method", "OIDC")]).unwrap_err();
    assert!(
        oidc.contains("sasl.oauthbearer.method: it has no HTTPS client"),
        "{oidc}"
    );
    let unnamed = with(&[unsecured]).unwrap_err();
    assert!(unnamed.contains("sasl.oauthbearer.config"), "{unnamed}");
    let alice = with(&[unsecured, ("sasl.oauthbearer.config", "principal=alice")]).unwrap();
    assert!(alice.tokens.unwrap().0.token().is_ok());
    let given = Properties::parse_with(bearer, Some(Arc::new(Given))).unwrap();
    assert_eq!(given.tokens.unwrap().0.token().unwrap_err(), "never asked");
    assert_eq!(given.sasl.unwrap().mechanism, Mechanism::OauthBearer);
}
