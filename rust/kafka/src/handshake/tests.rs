use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{
    ApiVersionsResponse, SaslAuthenticateResponse, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Encodable, StrBytes};

use super::{Handshake, Next};
use crate::error::{Error, Kind};
use crate::properties::{Mechanism, Sasl};
use crate::secret::Secret;

fn begin(mechanism: Option<Mechanism>) -> (Handshake, Bytes) {
    let sasl = mechanism.map(|mechanism| Sasl {
        mechanism,
        username: "user".to_owned(),
        password: Secret::new("pencil".to_owned()),
    });
    Handshake::begin(
        "b:1".to_owned(),
        "me".to_owned(),
        sasl,
        "rOprNGfwEbeRWgbNEkqO".to_owned(),
        Instant::now(),
    )
}

/// A frame as it arrives, with its correlation id.
fn frame(correlation: i32, tagged: bool, body: &impl Encodable, version: i16) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_i32(correlation);
    if tagged {
        frame.put_u8(0);
    }
    body.encode(&mut frame, version).unwrap();
    frame.freeze()
}

fn supported(error: i16, apis: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let apis = apis.iter().map(|(key, low, high)| {
        ApiVersion::default()
            .with_api_key(*key)
            .with_min_version(*low)
            .with_max_version(*high)
    });
    ApiVersionsResponse::default()
        .with_error_code(error)
        .with_api_keys(apis.collect())
}

const MODERN: [(i16, i16, i16); 3] = [(17, 0, 1), (18, 0, 4), (36, 0, 2)];

fn said(message: &str) -> SaslAuthenticateResponse {
    SaslAuthenticateResponse::default()
        .with_auth_bytes(Bytes::copy_from_slice(message.as_bytes()))
        .with_session_lifetime_ms(60_000)
}

fn sent(next: Next) -> Bytes {
    match next {
        Next::Send(frame) => frame,
        Next::Ready(greeted) => panic!("nothing was sent: {greeted:?}"),
    }
}

/// Returns key and version of a request frame.
fn version_of(frame: &Bytes) -> (i16, i16) {
    let field = |at| i16::from_be_bytes([frame[at], frame[at + 1]]);
    (field(4), field(6))
}

#[test]
fn without_credentials_versions_are_enough() {
    let (mut handshake, first) = begin(None);
    assert_eq!(version_of(&first), (18, 4));
    let Next::Ready(greeted) = handshake
        .answer(frame(0, false, &supported(0, &MODERN), 4))
        .unwrap()
    else {
        panic!("not ready");
    };
    assert_eq!(
        (greeted.supported.apis[&36], greeted.lifetime),
        ((0, 2), None)
    );
}

#[test]
fn an_unknown_version_is_retried_with_the_brokers_own() {
    for (highest, expected) in [(3, 3), (2, 0), (0, 0)] {
        let (mut handshake, _) = begin(None);
        let refusal = supported(35, &[(18, 0, highest)]);
        let again = sent(handshake.answer(frame(0, false, &refusal, 0)).unwrap());
        assert_eq!(version_of(&again), (18, expected));
        let answer = frame(1, false, &supported(0, &MODERN), expected);
        assert!(matches!(handshake.answer(answer).unwrap(), Next::Ready(_)));
    }
}

#[test]
fn a_broker_that_refuses_every_version_is_given_up() {
    let (mut handshake, _) = begin(None);
    let refusal = supported(35, &[(18, 0, 4)]);
    sent(handshake.answer(frame(0, false, &refusal, 0)).unwrap());
    let error = handshake.answer(frame(1, false, &refusal, 0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "b:1: ApiVersions: UNSUPPORTED_VERSION (35)"
    );
}

#[test]
fn plain_credentials_go_in_one_message() {
    let (mut handshake, _) = begin(Some(Mechanism::Plain));
    let mechanism = sent(
        handshake
            .answer(frame(0, false, &supported(0, &MODERN), 4))
            .unwrap(),
    );
    assert_eq!(version_of(&mechanism), (17, 1));
    let credentials = sent(
        handshake
            .answer(frame(1, false, &SaslHandshakeResponse::default(), 1))
            .unwrap(),
    );
    assert_eq!(version_of(&credentials), (36, 2));
    assert!(
        credentials.ends_with(b"\0user\0pencil\0"),
        "{credentials:?}"
    );
    let Next::Ready(greeted) = handshake.answer(frame(2, true, &said(""), 2)).unwrap() else {
        panic!("not ready");
    };
    assert_eq!(greeted.lifetime, Some(Duration::from_secs(60)));
}

fn scram_until_challenge() -> Handshake {
    let (mut handshake, _) = begin(Some(Mechanism::ScramSha256));
    sent(
        handshake
            .answer(frame(0, false, &supported(0, &MODERN), 4))
            .unwrap(),
    );
    let first = sent(
        handshake
            .answer(frame(1, false, &SaslHandshakeResponse::default(), 1))
            .unwrap(),
    );
    assert!(first.ends_with(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO\0"));
    handshake
}

fn scram_until_proof() -> Handshake {
    let mut handshake = scram_until_challenge();
    let challenge =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let last = sent(
        handshake
            .answer(frame(2, true, &said(challenge), 2))
            .unwrap(),
    );
    assert!(last.ends_with(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=\0"));
    handshake
}

#[test]
fn scram_ends_with_the_brokers_own_proof() {
    let proof = said("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert!(matches!(
        scram_until_proof()
            .answer(frame(3, true, &proof, 2))
            .unwrap(),
        Next::Ready(_)
    ));
}

#[test]
fn an_impostor_with_one_iteration_gets_no_proof() {
    let challenge =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1";
    let error = scram_until_challenge()
        .answer(frame(2, true, &said(challenge), 2))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(
        error.to_string().starts_with(
            "b:1: SCRAM-SHA-256 authentication failed: it asks for 1 iterations, which is outside 4096 to 1000000"
        ),
        "{error}"
    );
}

#[test]
fn a_broker_without_the_right_proof_gets_nothing_more() {
    let error = scram_until_proof()
        .answer(frame(3, true, &said("v=AAAA"), 2))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unauthorized);
    assert!(
        error
            .to_string()
            .contains("SCRAM-SHA-256 authentication failed: its proof"),
        "{error}"
    );
}

#[test]
fn a_wrong_password_is_reported_without_the_password() {
    let (mut handshake, _) = begin(Some(Mechanism::Plain));
    sent(
        handshake
            .answer(frame(0, false, &supported(0, &MODERN), 4))
            .unwrap(),
    );
    sent(
        handshake
            .answer(frame(1, false, &SaslHandshakeResponse::default(), 1))
            .unwrap(),
    );
    let refusal = SaslAuthenticateResponse::default()
        .with_error_code(58)
        .with_error_message(Some(StrBytes::from_static_str(
            "Invalid username or password",
        )));
    let error = handshake.answer(frame(2, true, &refusal, 2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "b:1: PLAIN authentication failed: SASL_AUTHENTICATION_FAILED (58): Invalid username or password"
    );
    assert!(!format!("{error:?}").contains("pencil"));
}

#[test]
fn a_mechanism_that_is_not_offered_is_named_with_those_that_are() {
    let (mut handshake, _) = begin(Some(Mechanism::Plain));
    sent(
        handshake
            .answer(frame(0, false, &supported(0, &MODERN), 4))
            .unwrap(),
    );
    let refusal = SaslHandshakeResponse::default()
        .with_error_code(33)
        .with_mechanisms(vec![StrBytes::from_static_str("SCRAM-SHA-512")]);
    let error = handshake.answer(frame(1, false, &refusal, 1)).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("the broker offers: SCRAM-SHA-512"),
        "{error}"
    );
}

#[test]
fn without_randomness_scram_is_not_begun() {
    let (mut handshake, _) = begin(Some(Mechanism::ScramSha512));
    handshake.nonce.clear();
    sent(
        handshake
            .answer(frame(0, false, &supported(0, &MODERN), 4))
            .unwrap(),
    );
    let error = handshake
        .answer(frame(1, false, &SaslHandshakeResponse::default(), 1))
        .unwrap_err();
    assert!(error.to_string().contains("no random numbers"), "{error}");
}

#[test]
fn a_broker_without_sasl_is_named() {
    let (mut handshake, _) = begin(Some(Mechanism::Plain));
    let error = handshake
        .answer(frame(0, false, &supported(0, &[(18, 0, 4)]), 4))
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Unsupported {
                api: "SaslHandshake",
                theirs: None,
                ..
            }
        ),
        "{error}"
    );
}

fn bearing() -> Handshake {
    let (mut handshake, _) = begin(Some(Mechanism::OauthBearer));
    let mechanism = handshake.answer(frame(0, false, &supported(0, &MODERN), 4));
    assert_eq!(version_of(&sent(mechanism.unwrap())), (17, 1));
    let token = handshake.answer(frame(1, false, &SaslHandshakeResponse::default(), 1));
    let token = sent(token.unwrap());
    assert_eq!(version_of(&token), (36, 2));
    assert!(
        token.ends_with(b"\x07pencil\0"),
        "the whole message comes from outside"
    );
    handshake
}

#[test]
fn a_token_that_is_taken_is_answered_with_nothing() {
    let Next::Ready(greeted) = bearing().answer(frame(2, true, &said(""), 2)).unwrap() else {
        panic!("not ready");
    };
    assert_eq!(greeted.lifetime, Some(std::time::Duration::from_secs(60)));
}

#[test]
fn a_token_that_is_refused_is_confirmed_and_the_reason_told() {
    let status = r#"{"status":"invalid_token"}"#;
    let refusal = SaslAuthenticateResponse::default()
        .with_error_code(58)
        .with_error_message(Some(StrBytes::from_static_str("no")));
    for (last, expected) in [
        (
            refusal,
            format!("SASL_AUTHENTICATION_FAILED (58): no: {status}"),
        ),
        // a broker that does not refuse has not accepted either
        (said(""), status.to_owned()),
    ] {
        let mut handshake = bearing();
        let confirmed = sent(handshake.answer(frame(2, true, &said(status), 2)).unwrap());
        assert!(confirmed.ends_with(b"\x02\x01\0"), "{confirmed:?}");
        let error = handshake.answer(frame(3, true, &last, 2)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("b:1: OAUTHBEARER authentication failed: {expected}")
        );
        assert_eq!(error.kind(), Kind::Unauthorized);
    }
}
