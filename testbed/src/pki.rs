//! A certificate authority for one run: serving certificates, client certificates, a signing key.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub cert: String,
    /// The private key, in PKCS#8.
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

/// A certificate authority made for one run and never written down whole.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(…)")
    }
}

impl Authority {
    /// A new authority.
    pub fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("testbed", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        let cert = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            cert,
        })
    }

    /// An authority that somebody else made, such as the one Cluster API makes for a cluster.
    pub fn from_pem(cert: &str, key: &str) -> Result<Self, rcgen::Error> {
        let unusable = || rcgen::Error::CouldNotParseKeyPair;
        let key = match PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| unusable())? {
            PrivateKeyDer::Pkcs1(rsa) => KeyPair::from_pkcs8_der_and_sign_algo(
                &PrivatePkcs8KeyDer::from(pkcs8(rsa.secret_pkcs1_der())),
                &rcgen::PKCS_RSA_SHA256,
            )?,
            _ => KeyPair::from_pem(key)?,
        };
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(cert, key)?,
            cert: cert.to_owned(),
        })
    }

    /// The authority's certificate in PEM.
    pub fn cert(&self) -> &str {
        &self.cert
    }

    /// A certificate for a server reached by these names and addresses.
    pub fn server(&self, names: &[&str]) -> Result<Identity, rcgen::Error> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = name("server", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// A certificate that makes its bearer this user, a member of these groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Identity, rcgen::Error> {
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity {
            cert,
            key: key.serialize_pem(),
        })
    }
}

/// Wraps an RSA key in the form that says what it is.
fn pkcs8(rsa: &[u8]) -> Vec<u8> {
    const RSA_ENCRYPTION: &[u8] = &[
        0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
    ];
    let tagged = |tag: u8, content: &[u8]| {
        let length = content.len().to_be_bytes();
        let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
        let mut out = vec![tag];
        if content.len() > 0x7f {
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or_default());
        }
        out.extend(digits);
        out.extend(content);
        out
    };
    let version = [0x02, 0x01, 0x00];
    tagged(
        0x30,
        &[&version, RSA_ENCRYPTION, &tagged(0x04, rsa)].concat(),
    )
}

fn name(common: &str, organizations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    for organization in organizations {
        name.push(DnType::OrganizationName, *organization);
    }
    name
}
