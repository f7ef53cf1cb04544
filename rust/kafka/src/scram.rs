//! The client side of SCRAM (RFC 5802, RFC 7677) as Kafka uses it (KIP-84), including the check of the broker's proof.
//!
//! Name and password are used as their UTF-8 bytes: Kafka's own client and broker do not apply `SASLprep`, and applying
//! it would lock out users whose password it changes.

use std::borrow::Cow;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

use crate::secret::Secret;

/// The minimum of Kafka's Java client, and of RFC 7677. Fewer iterations would let an impostor find the password from
/// our proof by trying.
const FEWEST_ITERATIONS: u32 = 4096;
/// A broker proves its identity only after we have computed ours, on each connection. This many iterations take a
/// second or less. Kafka stores no credential of more than 16,384 (KIP-554); other brokers may follow OWASP, which
/// recommends 600,000.
const MOST_ITERATIONS: u32 = 1_000_000;

/// The reason that an exchange ends.
type Refusal = Cow<'static, str>;

/// GS2 header of a client without channel binding: `n,,` in base64.
const NO_BINDING: &str = "biws";

/// The hash function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    fn mac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn stretch(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// An exchange before the broker's challenge. No `Debug`: it holds the password.
pub(crate) struct Scram {
    hash: Hash,
    password: Secret,
    nonce: String,
    first_bare: String,
}

/// An exchange that waits for the broker's proof.
pub(crate) struct Proof {
    key: hmac::Key,
    message: String,
}

impl Scram {
    /// Returns the exchange and its first message. `nonce` must be fresh, printable, and without a comma.
    pub(crate) fn begin(
        hash: Hash,
        username: &str,
        password: Secret,
        nonce: String,
    ) -> (Self, String) {
        let name = username.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={name},r={nonce}");
        let first = format!("n,,{first_bare}");
        (
            Self {
                hash,
                password,
                nonce,
                first_bare,
            },
            first,
        )
    }

    /// Returns the response to the broker's challenge.
    pub(crate) fn prove(self, server_first: &[u8]) -> Result<(Proof, String), Refusal> {
        let challenge =
            std::str::from_utf8(server_first).map_err(|_| "its challenge is not text")?;
        let nonce = attribute(challenge, 'r').ok_or("its challenge has no nonce")?;
        // a broker that does not extend our nonce replays an old exchange
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its nonce does not extend ours".into());
        }
        let salt = attribute(challenge, 's')
            .and_then(|salt| STANDARD.decode(salt).ok())
            .ok_or("its challenge has no salt")?;
        let iterations = attribute(challenge, 'i')
            .and_then(|count| count.parse::<u64>().ok())
            .ok_or("its challenge has no number of iterations")?;
        let iterations = acceptable(iterations)?;
        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(
            self.hash.stretch(),
            iterations,
            &salt,
            self.password.reveal().as_bytes(),
            &mut salted,
        );
        let salted = hmac::Key::new(self.hash.mac(), &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let without_proof = format!("c={NO_BINDING},r={nonce}");
        let message = format!("{},{challenge},{without_proof}", self.first_bare);
        let signature = hmac::sign(
            &hmac::Key::new(self.hash.mac(), stored_key.as_ref()),
            message.as_bytes(),
        );
        let proof: Vec<u8> = client_key
            .as_ref()
            .iter()
            .zip(signature.as_ref())
            .map(|(key, sign)| key ^ sign)
            .collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let last = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((
            Proof {
                key: hmac::Key::new(self.hash.mac(), server_key.as_ref()),
                message,
            },
            last,
        ))
    }
}

impl Proof {
    /// Checks the broker's proof that it knows the password, which an impostor does not.
    pub(crate) fn check(&self, server_last: &[u8]) -> Result<(), &'static str> {
        let last = std::str::from_utf8(server_last).map_err(|_| "its last message is not text")?;
        let signature = attribute(last, 'v')
            .and_then(|signature| STANDARD.decode(signature).ok())
            .ok_or("it does not prove that it knows the password")?;
        hmac::verify(&self.key, self.message.as_bytes(), &signature)
            .map_err(|_| "its proof that it knows the password is wrong")
    }
}

/// Checks the broker's number of iterations, before anything is computed from the password.
fn acceptable(iterations: u64) -> Result<NonZeroU32, Refusal> {
    u32::try_from(iterations)
        .ok()
        .filter(|count| (FEWEST_ITERATIONS..=MOST_ITERATIONS).contains(count))
        .and_then(NonZeroU32::new)
        .ok_or_else(|| {
            let fix = if iterations < u64::from(FEWEST_ITERATIONS) {
                "check that this is your broker, and store the credential again with more iterations"
            } else {
                "check that this is your broker, and store the credential again with fewer iterations"
            };
            format!(
                "it asks for {iterations} iterations, which is outside {FEWEST_ITERATIONS} to {MOST_ITERATIONS}; {fix}"
            )
            .into()
        })
}

fn attribute(message: &str, name: char) -> Option<&str> {
    message
        .split(',')
        .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::{Hash, Scram};
    use crate::secret::Secret;

    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const CHALLENGE: &[u8] =
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn begin(username: &str) -> (Scram, String) {
        Scram::begin(
            Hash::Sha256,
            username,
            Secret::new("pencil".to_owned()),
            NONCE.to_owned(),
        )
    }

    #[test]
    fn the_example_of_rfc_7677_is_followed_to_the_letter() {
        let (scram, first) = begin("user");
        assert_eq!(first, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (proof, last) = scram.prove(CHALLENGE).unwrap();
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        proof
            .check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
            .unwrap();
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_found_out() {
        let proof = begin("user").0.prove(CHALLENGE).unwrap().0;
        assert!(
            proof
                .check(b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
                .unwrap_err()
                .contains("wrong")
        );
        assert!(
            proof
                .check(b"e=other-error")
                .unwrap_err()
                .contains("does not prove")
        );
        assert!(proof.check(b"").is_err());
    }

    #[test]
    fn a_challenge_that_is_not_ours_is_refused() {
        for (challenge, reason) in [
            (
                &b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"[..],
                "its nonce does not extend ours",
            ),
            (
                b"r=rOprNGfwEbeRWgbNEkqO,s=AA==,i=4096",
                "its nonce does not extend ours",
            ),
            (
                b"r=rOprNGfwEbeRWgbNEkqOx,s=!,i=4096",
                "its challenge has no salt",
            ),
            (
                b"r=rOprNGfwEbeRWgbNEkqOx,s=AA==,i=-4096",
                "its challenge has no number of iterations",
            ),
            (b"\xff", "its challenge is not text"),
        ] {
            assert_eq!(
                begin("user").0.prove(challenge).err().as_deref(),
                Some(reason)
            );
        }
    }

    fn answer_to(iterations: &str) -> Result<String, String> {
        let challenge = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={iterations}");
        let proved = begin("user").0.prove(challenge.as_bytes());
        proved.map(|(_, last)| last).map_err(Into::into)
    }

    #[test]
    fn too_few_iterations_get_no_proof() {
        for few in ["0", "1", "4095"] {
            let refusal = answer_to(few).unwrap_err();
            assert!(
                refusal.contains(&format!("it asks for {few} iterations")),
                "{refusal}"
            );
            assert!(refusal.contains("4096"), "{refusal}");
        }
        assert!(answer_to("4096").is_ok());
        // the most that Kafka stores
        assert!(answer_to("16384").is_ok());
    }

    #[test]
    fn a_broker_cannot_make_us_compute_for_minutes() {
        for many in ["1000001", "4000000000", "18446744073709551615"] {
            let refusal = answer_to(many).unwrap_err();
            assert!(
                refusal.contains(&format!("it asks for {many} iterations")),
                "{refusal}"
            );
            assert!(refusal.contains("1000000"), "{refusal}");
        }
    }

    #[test]
    fn commas_and_equals_signs_in_names_are_escaped() {
        assert_eq!(begin("a=b,c").1, "n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqO");
    }
}
