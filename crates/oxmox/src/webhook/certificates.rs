//! The webhook's certificates: an authority of our own, and what it signed.
//!
//! An API server believes a webhook by the authority it was told (`caBundle`). The authority lives long, the serving
//! certificate briefly. Before an authority ends a second one is added, and both are told for as long as anything that the old
//! one signed may still be about; a new authority signs nothing on the day it is made, so that everybody has heard of it before
//! it matters. What is here is pure: the time is handed in, and what is made is returned.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, Result};
use jiff::{Timestamp, ToSpan as _, tz::TimeZone};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// How long an authority lasts, and how long before its end another one is added.
const AUTHORITY_DAYS: (i64, i64) = (730, 180);
/// How long a serving certificate lasts, and how long before its end it is replaced.
const SERVING_DAYS: (i64, i64) = (90, 30);

/// What a webhook needs to be believed. Printing it shows no key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Bundle {
    /// Authorities to believe, the one that signs first.
    authorities: Vec<String>,
    authority_key: String,
    serving: String,
    serving_key: String,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle")
            .field("authorities", &self.authorities.len())
            .finish_non_exhaustive()
    }
}

/// The parts of a certificate that decide whether it is still good.
struct Facts {
    ends: Timestamp,
    names: BTreeSet<String>,
}

impl Bundle {
    /// Reads the entries of a Secret; nothing where one is missing or unreadable.
    pub(crate) fn from_entries(entries: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |key: &str| String::from_utf8(entries.get(key)?.0.clone()).ok();
        let authorities: Vec<String> = split_pem(&text("ca.crt")?);
        let bundle = Self {
            authorities,
            authority_key: text("ca.key")?,
            serving: text("tls.crt")?,
            serving_key: text("tls.key")?,
        };
        // Half a Secret is worse than none: it would be kept.
        let usable = !bundle.authorities.is_empty()
            && bundle.authorities.iter().all(|pem| facts(pem).is_some())
            && facts(&bundle.serving).is_some()
            && KeyPair::from_pem(&bundle.authority_key).is_ok()
            && bundle
                .certified(&rustls::crypto::ring::default_provider())
                .is_ok();
        usable.then_some(bundle)
    }

    /// The entries of a Secret.
    pub(crate) fn to_entries(&self) -> BTreeMap<String, ByteString> {
        [
            ("ca.crt", self.trust()),
            ("ca.key", self.authority_key.clone()),
            ("tls.crt", self.serving.clone()),
            ("tls.key", self.serving_key.clone()),
        ]
        .map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())))
        .into()
    }

    /// What an API server is told to believe.
    pub(crate) fn trust(&self) -> String {
        self.authorities.concat()
    }

    /// The certificate and key to serve with.
    pub(crate) fn certified(&self, provider: &CryptoProvider) -> Result<CertifiedKey> {
        let certificate = CertificateDer::from_pem_slice(self.serving.as_bytes())
            .context("the serving certificate cannot be read")?;
        let key = PrivateKeyDer::from_pem_slice(self.serving_key.as_bytes())
            .context("the serving key cannot be read")?;
        CertifiedKey::from_der(vec![certificate], key, provider)
            .context("the serving certificate does not fit its key")
    }

    /// What takes the place of `old`; nothing while that is good for `names`.
    pub(crate) fn renewed(
        old: Option<&Self>,
        names: &[String],
        now: Timestamp,
    ) -> Result<Option<Self>> {
        let Some(old) = old else {
            return Self::fresh(names, now).map(Some);
        };
        let due = |pem: &str, (_, before): (i64, i64)| {
            facts(pem).is_none_or(|facts| facts.ends <= in_days(now, before))
        };
        let over = |pem: &str| facts(pem).is_none_or(|facts| facts.ends <= now);
        let wanted: BTreeSet<String> = names.iter().cloned().collect();
        let signer = &old.authorities[0];
        let known_names = facts(&old.serving).map(|facts| facts.names);
        if over(signer) || over(&old.serving) {
            // Nobody is served by either any more, so nothing is gained by going gently.
            let mut next = Self::fresh(names, now)?;
            let kept = old.authorities.iter().filter(|pem| !over(pem)).cloned();
            next.authorities.extend(kept);
            return Ok(Some(next));
        }
        if due(signer, AUTHORITY_DAYS) {
            let (authority, authority_key) = authority(now)?;
            let mut next = old.clone();
            next.authorities.retain(|pem| !over(pem));
            next.authorities.insert(0, authority);
            next.authority_key = authority_key;
            return Ok(Some(next));
        }
        if due(&old.serving, SERVING_DAYS) || known_names.as_ref() != Some(&wanted) {
            let (serving, serving_key) = serving(&old.authority_key, names, now)?;
            let mut next = Self {
                serving,
                serving_key,
                ..old.clone()
            };
            next.authorities.retain(|pem| !over(pem));
            return Ok(Some(next));
        }
        Ok(None)
    }

    fn fresh(names: &[String], now: Timestamp) -> Result<Self> {
        let (authority, authority_key) = authority(now)?;
        let (serving, serving_key) = serving(&authority_key, names, now)?;
        Ok(Self {
            authorities: vec![authority],
            authority_key,
            serving,
            serving_key,
        })
    }
}

/// Who the authority is; the same for ever, so that it can be signed with without being read.
fn authority_params() -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "oxmox webhook authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn authority(now: Timestamp) -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    let mut params = authority_params()?;
    lasting(&mut params, now, AUTHORITY_DAYS.0);
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

fn serving(authority_key: &str, names: &[String], now: Timestamp) -> Result<(String, String)> {
    let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(authority_key)?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "oxmox webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    lasting(&mut params, now, SERVING_DAYS.0);
    Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

/// From the day before (clocks differ) for so many days.
fn lasting(params: &mut CertificateParams, now: Timestamp, days: i64) {
    let day = |at: Timestamp| {
        let date = at.to_zoned(TimeZone::UTC).date();
        let number = |n: i8| u8::try_from(n).unwrap_or(1);
        date_time_ymd(date.year().into(), number(date.month()), number(date.day()))
    };
    params.not_before = day(in_days(now, -1));
    params.not_after = day(in_days(now, days));
}

fn in_days(now: Timestamp, days: i64) -> Timestamp {
    now.saturating_add((days * 24).hours())
        .unwrap_or(Timestamp::MAX)
}

fn facts(pem: &str) -> Option<Facts> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let ends = Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()?;
    let alternative = certificate.subject_alternative_name().ok()?;
    let names = alternative
        .iter()
        .flat_map(|names| &names.value.general_names)
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect();
    Some(Facts { ends, names })
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|b| std::net::IpAddr::from(b).to_string());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|b| std::net::IpAddr::from(b).to_string()))
        .ok()
}

/// The certificates of a PEM text, one by one.
fn split_pem(text: &str) -> Vec<String> {
    let end = "-----END CERTIFICATE-----";
    text.split_inclusive(end)
        .filter(|part| part.contains(end))
        .map(|part| format!("{}\n", part.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["oxmox.system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    fn start() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().unwrap()
    }

    fn first() -> Bundle {
        Bundle::renewed(None, &names(), start()).unwrap().unwrap()
    }

    /// Whether the serving certificate was signed by an authority that is told.
    fn is_believed(bundle: &Bundle, told: &str) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        for pem in split_pem(told) {
            roots
                .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
                .unwrap();
        }
        let der = CertificateDer::from_pem_slice(bundle.serving.as_bytes()).unwrap();
        let (_, leaf) = X509Certificate::from_der(&der).unwrap();
        split_pem(told).iter().any(|pem| {
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let (_, authority) = X509Certificate::from_der(&der).unwrap();
            leaf.issuer() == authority.subject()
                && leaf.tbs_certificate.validity.not_after.timestamp()
                    <= authority.validity().not_after.timestamp()
        })
    }

    #[test]
    fn a_secret_holds_all_of_it() {
        let bundle = first();
        assert_eq!(
            Bundle::from_entries(&bundle.to_entries()).as_ref(),
            Some(&bundle)
        );
        let mut half = bundle.to_entries();
        half.remove("tls.key");
        assert_eq!(Bundle::from_entries(&half), None);
        let mut mixed = bundle.to_entries();
        mixed.insert(
            "tls.key".into(),
            ByteString(first().serving_key.into_bytes()),
        );
        assert_eq!(
            Bundle::from_entries(&mixed),
            None,
            "a key that is another's"
        );
    }

    #[test]
    fn nothing_is_renewed_while_it_is_good() {
        let bundle = first();
        let later = in_days(start(), 59);
        assert_eq!(
            Bundle::renewed(Some(&bundle), &names(), later).unwrap(),
            None
        );
    }

    #[test]
    fn the_serving_certificate_is_replaced_in_time_and_nobody_need_be_told() {
        let bundle = first();
        let next = Bundle::renewed(Some(&bundle), &names(), in_days(start(), 61))
            .unwrap()
            .unwrap();
        assert_ne!(next.serving, bundle.serving);
        assert_eq!(next.trust(), bundle.trust());
    }

    #[test]
    fn other_names_need_another_certificate() {
        let bundle = first();
        let other = vec!["oxmox.elsewhere.svc".to_owned()];
        let next = Bundle::renewed(Some(&bundle), &other, start())
            .unwrap()
            .unwrap();
        assert_ne!(next.serving, bundle.serving);
        assert_eq!(Bundle::renewed(Some(&next), &other, start()).unwrap(), None);
    }

    #[test]
    fn over_ten_years_every_certificate_is_believed_by_whoever_heard_the_last_news() {
        let mut bundle = first();
        let mut told = bundle.trust();
        let mut changes = 0;
        for day in 1..3650 {
            let now = in_days(start(), day);
            if let Some(next) = Bundle::renewed(Some(&bundle), &names(), now).unwrap() {
                // Whoever has not heard yet still believes what is served with now.
                assert!(is_believed(&next, &told), "day {day}");
                bundle = next;
                changes += 1;
            }
            told = bundle.trust();
            assert!(bundle.authorities.len() <= 2, "day {day}");
            assert!(facts(&bundle.serving).unwrap().ends > now, "day {day}");
        }
        assert!((50..90).contains(&changes), "{changes} changes");
    }

    #[test]
    fn after_a_long_sleep_everything_is_made_anew() {
        let bundle = first();
        let now = in_days(start(), 5000);
        let next = Bundle::renewed(Some(&bundle), &names(), now)
            .unwrap()
            .unwrap();
        assert_eq!(next.authorities.len(), 1);
        assert!(is_believed(&next, &next.trust()));
    }

    #[test]
    fn keys_are_not_printed() {
        assert!(!format!("{:?}", first()).contains("KEY"));
    }
}
