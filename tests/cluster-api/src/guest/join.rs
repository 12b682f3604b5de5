//! How a new node and its cluster come to trust each other, with nothing but a token and a fingerprint.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, Config, ResourceExt as _};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::pki::Identity;
use tokio::time::{Instant, sleep};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::Failure;
use crate::bed::PATIENCE;

/// `discovery.bootstrapToken`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    pub(super) api_server_endpoint: String,
    #[serde(rename = "token")]
    secret: String,
    #[serde(default)]
    ca_cert_hashes: Vec<String>,
}

impl Token {
    /// Asks the API server, unknown as it is, for its authority, and believes it if the fingerprint fits.
    pub(super) async fn discover(&self) -> Result<String, Failure> {
        let mut config = Config::new(format!("https://{}", self.api_server_endpoint).parse()?);
        config.accept_invalid_certs = true;
        let api: Api<ConfigMap> = Api::namespaced(Client::try_from(config)?, "kube-public");
        let info = api.get("cluster-info").await?;
        let text = info
            .data
            .unwrap_or_default()
            .remove("kubeconfig")
            .ok_or("cluster-info has no kubeconfig")?;
        let kubeconfig: Value = serde_saphyr::from_str(&text)?;
        let data = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
            .as_str()
            .ok_or("cluster-info has no authority")?;
        let authority = String::from_utf8(base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            data,
        )?)?;
        let fingerprint = fingerprint(&authority)?;
        if self.ca_cert_hashes.contains(&fingerprint) {
            Ok(authority)
        } else {
            Err(format!("{fingerprint} is none of {:?}", self.ca_cert_hashes).into())
        }
    }

    /// Has the cluster sign a certificate for the kubelet.
    pub(super) async fn introduce(&self, authority: &str, name: &str) -> Result<Identity, Failure> {
        let mut config = super::kubelet::config(&self.api_server_endpoint, authority)?;
        config.auth_info.token = Some(SecretString::from(self.secret.clone()));
        let api: Api<CertificateSigningRequest> = Api::all(Client::try_from(config)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        let mut subject = DistinguishedName::new();
        subject.push(DnType::OrganizationName, "system:nodes");
        subject.push(DnType::CommonName, format!("system:node:{name}"));
        params.distinguished_name = subject;
        let request = params.serialize_request(&key)?.pem()?;
        let request: CertificateSigningRequest = serde_json::from_value(json!({
            "metadata": {"generateName": "node-csr-"},
            "spec": {
                "request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"],
            },
        }))?;
        let made = api.create(&PostParams::default(), &request).await?;
        let start = Instant::now();
        while start.elapsed() < *PATIENCE {
            let seen = api.get(&made.name_any()).await?;
            if let Some(certificate) = seen.status.and_then(|status| status.certificate) {
                return Ok(Identity {
                    cert: String::from_utf8(certificate.0)?,
                    key: key.serialize_pem(),
                });
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err("nobody signed the kubelet's certificate".into())
    }
}

/// kubeadm's way to name an authority: the digest of its public key.
fn fingerprint(authority: &str) -> Result<String, Failure> {
    let der = CertificateDer::from_pem_slice(authority.as_bytes())?;
    let (_, certificate) = X509Certificate::from_der(&der)?;
    let digest = Sha256::digest(certificate.public_key().raw);
    Ok(digest.iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
