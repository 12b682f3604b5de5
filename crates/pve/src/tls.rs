//! Which certificates to believe, and the connection that follows from it.
//!
//! Proxmox VE signs its certificates with an authority of each cluster, which no system knows. So there are three
//! good ways (the system's roots for certificates from a public authority, the cluster's own CA, or the SHA-256
//! fingerprint of one certificate) and one bad way, which must be asked for by name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};

use crate::client::Body;
use crate::error::{Error, Result};

/// Which certificates to believe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those signed by an authority the system knows.
    #[default]
    System,
    /// Those signed by an authority of this PEM text, such as the cluster's `/etc/pve/pve-root-ca.pem`.
    Authority(String),
    /// Exactly those with one of these fingerprints, whoever signed them; one per node of the cluster.
    Fingerprints(Vec<Fingerprint>),
    /// All of them: whoever is in between can read and change everything.
    Insecure,
}

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            write!(f, "{}{byte:02X}", if at == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    /// Reads 64 hexadecimal digits, with or without colons.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = || Error::Request {
            text: format!("'{text}' is not a SHA-256 fingerprint"),
        };
        let digits: Vec<u32> = text
            .trim()
            .chars()
            .filter(|c| *c != ':')
            .map(|c| c.to_digit(16))
            .collect::<Option<_>>()
            .ok_or_else(refuse)?;
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return Err(refuse());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::try_from(pair[0] * 16 + pair[1]).map_err(|_| refuse())?;
        }
        Ok(Self(bytes))
    }
}

/// The one cryptographic provider of the client.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// What rustls needs for a trust.
pub fn client_config(trust: &Trust) -> Result<ClientConfig> {
    let fail = |text: String| Error::Request { text };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(error.to_string()))?;
    Ok(match trust {
        Trust::System => builder
            .with_native_roots()
            .map_err(|error| {
                fail(format!(
                    "the system has no certificate roots ({error}); give the cluster's CA or a fingerprint"
                ))
            })?
            .with_no_client_auth(),
        Trust::Authority(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|error| fail(format!("the CA is not PEM: {error}")))?;
                roots.add(certificate).map_err(|error| fail(format!("CA cannot be used: {error}")))?;
            }
            if roots.is_empty() {
                return Err(fail("CA text holds no certificate".to_owned()));
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Fingerprints(pins) if pins.is_empty() => {
            return Err(fail("no fingerprint is given".to_owned()));
        }
        Trust::Fingerprints(pins) => custom(builder, Some(pins.clone())),
        Trust::Insecure => custom(builder, None),
    })
}

fn custom(
    builder: rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>,
    pins: Option<Vec<Fingerprint>>,
) -> ClientConfig {
    builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinVerifier {
            pins,
            provider: provider(),
        }))
        .with_no_client_auth()
}

/// A pooled connection to the network.
pub(crate) fn connect(
    trust: &Trust,
    timeout: Duration,
) -> Result<HyperClient<HttpsConnector<HttpConnector>, Body>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(timeout));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(client_config(trust)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(HyperClient::builder(TokioExecutor::new())
        // The server drops connections that rest for a few seconds; to be first avoids sending into a closed one.
        .pool_idle_timeout(Duration::from_secs(4))
        .pool_timer(TokioTimer::new())
        .build(https))
}

/// Believes a certificate for what it is instead of for who signed it.
#[derive(Debug)]
struct PinVerifier {
    /// The certificates to believe; all of them if absent.
    pins: Option<Vec<Fingerprint>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = Fingerprint::of(end_entity);
        match &self.pins {
            Some(pins) if !pins.contains(&seen) => Err(rustls::Error::General(format!(
                "the server's certificate has the fingerprint {seen}, which is not the pinned one"
            ))),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The certificate a server shows, whoever signed it.
///
/// This is for telling a person what to pin, never for deciding to trust.
pub async fn shown_certificate(
    host: &str,
    port: u16,
    timeout: Duration,
) -> Result<CertificateDer<'static>> {
    let unreachable = |text: String| Error::Unreachable { text, cause: None };
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|error| {
        Error::Request {
            text: format!("host '{host}': {error}"),
        }
    })?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client_config(&Trust::Insecure)?));
    let handshake = async {
        let tcp = tokio::net::TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        connector.connect(name, tcp).await
    };
    let stream = tokio::time::timeout(timeout, handshake)
        .await
        .map_err(|_| unreachable(format!("{host}:{port} did not answer within {timeout:?}")))?
        .map_err(|error| unreachable(format!("{host}:{port}: {error}")))?;
    let (_, session) = stream.get_ref();
    session
        .peer_certificates()
        .and_then(|chain| chain.first())
        .map(|certificate| certificate.clone().into_owned())
        .ok_or_else(|| unreachable(format!("{host}:{port} showed no certificate")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_with_and_without_colons() {
        let fingerprint = Fingerprint::of(b"certificate");
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 95);
        assert_eq!(text.parse::<Fingerprint>().unwrap(), fingerprint);
        assert_eq!(
            text.replace(':', "")
                .to_lowercase()
                .parse::<Fingerprint>()
                .unwrap(),
            fingerprint
        );
        assert!("AB:CD".parse::<Fingerprint>().is_err());
    }

    #[test]
    fn an_authority_without_a_certificate_is_refused() {
        assert!(client_config(&Trust::Authority("hello".to_owned())).is_err());
        assert!(client_config(&Trust::Fingerprints(Vec::new())).is_err());
    }
}
