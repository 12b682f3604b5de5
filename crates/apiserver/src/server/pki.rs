//! The server's own certificate authority, and the files it lives in.

use std::{
    fs,
    io::Write as _,
    net::{IpAddr, SocketAddr},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};

use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

use super::Error;
use crate::{auth::tokens::Signer, clock::Clock};

/// A certificate and its key, PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

pub(crate) struct Pki {
    pub(crate) ca_pem: String,
    pub(crate) token_key: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
    clock: Clock,
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::Certificates(error.to_string())
}

impl Pki {
    /// Reads the authority of a data directory, or makes it.
    pub(crate) fn load_or_create(directory: &Path, clock: &Clock) -> Result<Self, Error> {
        let pki = directory.join("pki");
        create_private_dir(&pki)?;
        let now = clock.now();
        let (key_path, ca_path) = (pki.join("ca.key"), pki.join("ca.crt"));
        let key = if let Some(pem) = read(&key_path)? {
            KeyPair::from_pem(&pem).map_err(broken)?
        } else {
            let key = KeyPair::generate().map_err(broken)?;
            write_private(&key_path, key.serialize_pem().as_bytes())?;
            key
        };
        let params = ca_params(now)?;
        let ca_pem = if let Some(pem) = read(&ca_path)? {
            pem
        } else {
            let pem = params.self_signed(&key).map_err(broken)?.pem();
            write_private(&ca_path, pem.as_bytes())?;
            pem
        };
        let token_path = pki.join("tokens.key");
        let token_key = match fs::read(&token_path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let bytes = Signer::generate().map_err(broken)?;
                write_private(&token_path, &bytes)?;
                bytes
            }
            Err(source) => return Err(file(&token_path, source)),
        };
        Ok(Self {
            ca_pem,
            token_key,
            issuer: Issuer::new(params, key),
            clock: clock.clone(),
        })
    }

    /// A client certificate: the name is the user, the organisations are the groups.
    pub(crate) fn client(&self, name: &str, groups: &[&str]) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, (*group).to_owned());
        }
        params
            .distinguished_name
            .push(DnType::CommonName, name.to_owned());
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, Error> {
        set_validity(&mut params, self.clock.now(), 1);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(broken)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(broken)?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// TLS that asks clients for a certificate of this authority and takes those without one, too.
    pub(crate) fn server_config(
        &self,
        address: SocketAddr,
        names: &[String],
    ) -> Result<Arc<ServerConfig>, Error> {
        let mut params = CertificateParams::new(
            [
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
                "kubernetes.default.svc.cluster.local",
            ]
            .map(str::to_owned)
            .to_vec(),
        )
        .map_err(broken)?;
        params.distinguished_name.remove(DnType::CommonName);
        params
            .distinguished_name
            .push(DnType::CommonName, "oxmox-apiserver");
        let mut addresses = vec![
            IpAddr::from([127, 0, 0, 1]),
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16]),
        ];
        if !address.ip().is_unspecified() && !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
        for name in names {
            match name.parse::<IpAddr>() {
                Ok(ip) => addresses.push(ip),
                Err(_) => params
                    .subject_alt_names
                    .push(SanType::DnsName(name.as_str().try_into().map_err(broken)?)),
            }
        }
        params
            .subject_alt_names
            .extend(addresses.into_iter().map(SanType::IpAddress));
        let identity = self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).map_err(broken)?;
        let mut roots = RootCertStore::empty();
        roots.add(ca).map_err(broken)?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(broken)?;
        let certificate =
            CertificateDer::from_pem_slice(identity.certificate.as_bytes()).map_err(broken)?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(identity.key.as_bytes()).map_err(broken)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(broken)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key))
            .map_err(broken)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn ca_params(now: Timestamp) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(Vec::new()).map_err(broken)?;
    params.distinguished_name.remove(DnType::CommonName);
    params
        .distinguished_name
        .push(DnType::CommonName, "oxmox-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    set_validity(&mut params, now, 10);
    Ok(params)
}

/// From yesterday, for clocks that disagree, for some years.
fn set_validity(params: &mut CertificateParams, now: Timestamp, years: i32) {
    let today = now.to_zoned(TimeZone::UTC).date();
    let day = |date: jiff::civil::Date| {
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    let from = today.checked_sub(1.day()).unwrap_or(today);
    let until = today.checked_add(years.years()).unwrap_or(today);
    params.not_before = day(from);
    params.not_after = day(until);
}

fn file(path: &Path, source: std::io::Error) -> Error {
    Error::File {
        path: path.display().to_string(),
        source,
    }
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(file(path, source)),
    }
}

/// Creates a directory only its owner can enter.
pub(super) fn create_private_dir(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| file(path, source))
}

/// Replaces a file at once, readable by its owner only.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("new");
    let write = || {
        let _ = fs::remove_file(&temporary);
        let mut out = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        out.write_all(bytes)?;
        out.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| file(path, source))
}
