//! TLS with rustls on ring: trust, client certificate, and verification.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::error::Error;
use crate::properties::{Pem, Tls, Trust, Verification};

/// Reads certificates and keys, once for all connections.
pub(crate) fn client_config(tls: &Tls) -> Result<Arc<ClientConfig>, Error> {
    // passed explicitly and not installed for the process, which may have other users of rustls
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let refuse = |property: &str, error: &dyn std::fmt::Display| Error::BadProperty {
        property: property.to_owned(),
        reason: error.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse("security.protocol", &error))?;
    let verifier = Verifier::new(tls, provider)?;
    let builder = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates("ssl.certificate.location", certificate)?;
            let key = private_key(key)?;
            // the two belong together, and are replaced one after the other
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                wrong("ssl.certificate.location", certificate, error.to_string())
            })?
        }
    };
    Ok(Arc::new(config))
}

/// Returns the error of invalid material: text stays invalid, but a file may be being replaced.
fn wrong(property: &str, pem: &Pem, reason: String) -> Error {
    let property = property.to_owned();
    match pem {
        Pem::Inline(_) => Error::BadProperty { property, reason },
        Pem::File(_) => Error::BadFile { property, reason },
    }
}

/// Reads certificates from PEM text, a PEM file, or all PEM files of a folder.
fn certificates(property: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Error> {
    let bad = |reason: String| wrong(property, pem, reason);
    let found = match pem {
        Pem::Inline(text) => read_certificates(text.reveal().as_bytes()),
        Pem::File(path) if path.is_dir() => folder(path).map_err(|error| bad(error.to_string()))?,
        Pem::File(path) => read_certificates(&read(property, path)?),
    };
    match found {
        Ok(found) if found.is_empty() => Err(bad("there is no certificate in it".to_owned())),
        Ok(found) => Ok(found),
        Err(reason) => Err(bad(reason)),
    }
}

type Certificates = Result<Vec<CertificateDer<'static>>, String>;

fn read_certificates(pem: &[u8]) -> Certificates {
    CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("its PEM is broken: {error}"))
}

/// Reads a folder as OpenSSL uses them: it holds other files, too (links, revocation lists), which are skipped.
fn folder(path: &Path) -> std::io::Result<Certificates> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_file() {
            found.extend(read_certificates(&std::fs::read(path)?).unwrap_or_default());
        }
    }
    Ok(Ok(found))
}

fn read(property: &str, path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| Error::BadFile {
        property: property.to_owned(),
        reason: format!("{}: {error}", path.display()),
    })
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, Error> {
    let property = "ssl.key.location";
    let text = match pem {
        Pem::Inline(text) => text.reveal().as_bytes().to_vec(),
        Pem::File(path) => read(property, path)?,
    };
    // the library's own message could quote the key
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let reason = "there is no unencrypted PEM private key in it";
        wrong(property, pem, reason.to_owned())
    })
}

fn roots(trust: &Trust) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::System => {
            // systems have expired and odd certificates: the usable ones are taken
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Trust::Authorities(pem) => {
            for certificate in certificates("ssl.ca.location", pem)? {
                roots
                    .add(certificate)
                    .map_err(|error| wrong("ssl.ca.location", pem, error.to_string()))?;
            }
        }
    }
    Ok(roots)
}

/// Verifies a certificate to the configured extent, and always the handshake's signature.
#[derive(Debug)]
struct Verifier {
    full: Option<Arc<WebPkiServerVerifier>>,
    verification: Verification,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(tls: &Tls, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let full = if tls.verification == Verification::Nothing {
            None
        } else {
            let roots = Arc::new(roots(&tls.trust)?);
            let verifier =
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|error| Error::BadProperty {
                        property: "ssl.ca.location".to_owned(),
                        reason: error.to_string(),
                    })?;
            Some(verifier)
        };
        Ok(Self {
            full,
            verification: tls.verification,
            provider,
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(full) = &self.full else {
            return Ok(ServerCertVerified::assertion());
        };
        match full.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // the name is checked last, so this error means that the chain is good
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.verification == Verification::Chain => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::client_config;
    use crate::error::Kind;
    use crate::properties::{Pem, Tls, Trust, Verification};
    use crate::secret::Secret;

    fn inline(text: &str) -> Pem {
        Pem::Inline(Secret::new(text.to_owned()))
    }

    fn tls(trust: Trust, identity: Option<(Pem, Pem)>) -> Tls {
        Tls {
            trust,
            identity,
            verification: Verification::Full,
        }
    }

    #[test]
    fn authorities_that_are_none_are_refused() {
        for (pem, reason, kind) in [
            (
                inline("nothing"),
                "there is no certificate in it",
                Kind::Configuration,
            ),
            (
                Pem::File("/no/such/ca.pem".into()),
                "/no/such/ca.pem: ",
                Kind::Unreachable,
            ),
        ] {
            let error = client_config(&tls(Trust::Authorities(pem), None)).unwrap_err();
            assert_eq!(error.kind(), kind);
            let error = error.to_string();
            assert!(
                error.starts_with("property ssl.ca.location: ") && error.contains(reason),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_that_is_half_written_passes_and_a_text_stays_wrong() {
        let file = std::env::temp_dir().join(format!("half-{}.pem", std::process::id()));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
        let kind = |pem| {
            client_config(&tls(Trust::Authorities(pem), None))
                .unwrap_err()
                .kind()
        };
        assert_eq!(kind(Pem::File(file.clone())), Kind::Unreachable);
        assert_eq!(
            kind(inline("-----BEGIN CERTIFICATE-----\nAAAA\n")),
            Kind::Configuration
        );
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_broken_key_is_refused_without_showing_it() {
        let mut tls = tls(Trust::System, Some((inline("x"), inline("hunter2"))));
        tls.verification = Verification::Nothing;
        let error = client_config(&tls).unwrap_err().to_string();
        assert!(error.contains("ssl.certificate.location"), "{error}");
        assert!(!error.contains("hunter2"));
    }
}
