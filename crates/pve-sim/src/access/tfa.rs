//! Second factors: one-time passwords by the clock (RFC 6238) and recovery keys.
//!
//! Whoever has one gets a *challenge* for the password instead of a ticket: a text that looks like a
//! ticket, opens nothing, and says which factors would do. Sent back as `tfa-challenge` with
//! `totp:123456` or `recovery:…` as the password, it becomes a ticket. A code is good once, and after
//! [`PATIENCE`] wrong ones the user's codes are refused until somebody unlocks them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha512};

/// Wrong codes in a row that are put up with.
const PATIENCE: u32 = 8;
/// How many recovery keys there are in a set.
pub(crate) const RECOVERY_KEYS: usize = 10;

/// The second factors of one user.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Factors {
    /// By id.
    pub(crate) entries: BTreeMap<String, Factor>,
    /// Wrong codes since the last good one.
    failures: u32,
}

/// One second factor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Factor {
    pub(crate) description: String,
    pub(crate) created: u64,
    pub(crate) enable: bool,
    pub(crate) kind: Kind,
}

/// What a factor is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Codes by the clock.
    Totp(Totp),
    /// Keys that are good once each.
    Recovery(Keys),
}

/// What is left of a set of recovery keys.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Keys(pub(crate) Vec<String>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({} left)", self.0.len())
    }
}

impl Kind {
    /// The type's name in the API.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Totp(_) => "totp",
            Self::Recovery(_) => "recovery",
        }
    }
}

impl Factors {
    /// Whether a login needs a second step.
    pub(crate) fn required(&self) -> bool {
        self.entries.values().any(|factor| factor.enable)
    }

    /// Whether too many codes were wrong.
    pub(crate) fn locked(&self) -> bool {
        self.failures >= PATIENCE
    }

    /// Takes codes again; says whether they had been refused.
    pub(crate) fn unlock(&mut self) -> bool {
        let locked = self.locked();
        self.failures = 0;
        locked
    }

    /// What would do as a second step, as the web interface is told.
    pub(crate) fn challenge(&self) -> serde_json::Value {
        let mut challenge = serde_json::Map::new();
        for factor in self.entries.values().filter(|factor| factor.enable) {
            let (name, told) = match &factor.kind {
                Kind::Totp(_) => ("totp", true.into()),
                Kind::Recovery(keys) => ("recovery", (0..keys.0.len()).collect()),
            };
            challenge.insert(name.to_owned(), told);
        }
        challenge.into()
    }

    /// Whether an answer such as `totp:123456` is right; a right one is used up.
    pub(crate) fn accept(&mut self, answer: &str, now: u64) -> bool {
        let Some((kind, value)) = answer.split_once(':') else {
            return false;
        };
        let locked = self.locked();
        let mut enabled = self.entries.values_mut().filter(|factor| factor.enable);
        let right = enabled.any(|factor| match (&mut factor.kind, kind) {
            (Kind::Totp(totp), "totp") => !locked && totp.accept(value, now),
            (Kind::Recovery(keys), "recovery") => {
                let before = keys.0.len();
                keys.0.retain(|key| key != value);
                keys.0.len() < before
            }
            _ => false,
        });
        self.failures = if right { 0 } else { self.failures + 1 };
        right
    }
}

/// A secret that makes codes by the clock.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Totp {
    secret: Vec<u8>,
    algorithm: Algorithm,
    digits: u32,
    period: u64,
    /// The newest period whose code was used.
    last: u64,
}

impl std::fmt::Debug for Totp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Totp(…)")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

impl Totp {
    /// Codes of six digits for thirty seconds each, from a secret in base 32.
    pub(crate) fn new(secret: &str) -> Option<Self> {
        Some(Self {
            secret: base32(secret)?,
            algorithm: Algorithm::Sha1,
            digits: 6,
            period: 30,
            last: 0,
        })
    }

    /// What an `otpauth://totp/…` URI describes.
    pub(crate) fn from_uri(uri: &str) -> Option<Self> {
        let (_, query) = uri.strip_prefix("otpauth://totp/")?.split_once('?')?;
        let pairs = || query.split('&').filter_map(|pair| pair.split_once('='));
        let value = |name: &str| pairs().find(|(known, _)| *known == name).map(|(_, it)| it);
        let mut totp = Self::new(value("secret")?)?;
        totp.algorithm = match value("algorithm") {
            None | Some("SHA1") => Algorithm::Sha1,
            Some("SHA256") => Algorithm::Sha256,
            Some("SHA512") => Algorithm::Sha512,
            Some(_) => return None,
        };
        if let Some(digits) = value("digits") {
            totp.digits = digits.parse().ok().filter(|it| (6..=8).contains(it))?;
        }
        if let Some(period) = value("period") {
            totp.period = period.parse().ok().filter(|it| *it > 0)?;
        }
        Some(totp)
    }

    /// The code of one period.
    fn code(&self, counter: u64) -> String {
        let counter = counter.to_be_bytes();
        let mac = match self.algorithm {
            Algorithm::Sha1 => hmac::<Sha1>(&self.secret, &counter, 64),
            Algorithm::Sha256 => hmac::<Sha256>(&self.secret, &counter, 64),
            Algorithm::Sha512 => hmac::<Sha512>(&self.secret, &counter, 128),
        };
        let at = mac.last().map_or(0, |byte| usize::from(byte & 15));
        let part = mac.get(at..at + 4).unwrap_or_default();
        let number = part
            .iter()
            .fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        let digits = usize::try_from(self.digits).unwrap_or(6);
        let code = (number & 0x7fff_ffff) % 10_u32.pow(self.digits);
        format!("{code:0digits$}")
    }

    /// Whether it is the code of now or of a period beside it, and not used yet.
    pub(crate) fn accept(&mut self, code: &str, now: u64) -> bool {
        let current = now / self.period;
        let mut near = current.saturating_sub(1)..=current + 1;
        match near.find(|counter| *counter > self.last && self.code(*counter) == code) {
            None => false,
            Some(counter) => {
                self.last = counter;
                true
            }
        }
    }
}

/// HMAC (RFC 2104) with a hash of this block length.
fn hmac<D: Digest>(key: &[u8], message: &[u8], block: usize) -> Vec<u8> {
    let mut padded = if key.len() > block {
        D::digest(key).to_vec()
    } else {
        key.to_vec()
    };
    padded.resize(block, 0);
    let with = |mask: u8| padded.iter().map(|byte| byte ^ mask).collect::<Vec<u8>>();
    let inner = D::new().chain_update(with(0x36)).chain_update(message);
    let outer = D::new()
        .chain_update(with(0x5c))
        .chain_update(inner.finalize());
    outer.finalize().to_vec()
}

/// Bytes of a text in base 32, with or without padding.
fn base32(text: &str) -> Option<Vec<u8>> {
    let (mut bits, mut held, mut bytes) = (0_u32, 0_u32, Vec::new());
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a',
            b'2'..=b'7' => c - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u32::from(value);
        held += 5;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap_or_default());
            bits &= (1 << held) - 1;
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of RFC 6238's examples, `12345678901234567890`.
    const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

    #[test]
    fn codes_are_those_of_the_standard() {
        let eight = |algorithm: &str, secret: &str| {
            Totp::from_uri(&format!(
                "otpauth://totp/x?secret={secret}&digits=8&algorithm={algorithm}"
            ))
            .unwrap()
        };
        let sha1 = eight("SHA1", SECRET);
        assert_eq!(sha1.code(59 / 30), "94287082");
        assert_eq!(sha1.code(1_111_111_109 / 30), "07081804");
        let longer = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZA";
        assert_eq!(eight("SHA256", longer).code(59 / 30), "46119246");
    }

    #[test]
    fn a_code_is_good_once_and_only_near_its_time() {
        let mut totp = Totp::new(SECRET).unwrap();
        let code = totp.code(10);
        assert!(!totp.clone().accept(&code, 12 * 30));
        assert!(totp.accept(&code, 11 * 30));
        assert!(!totp.accept(&code, 11 * 30));
    }

    #[test]
    fn too_many_wrong_codes_lock_the_right_ones_out() {
        let totp = Totp::new(SECRET).unwrap();
        let code = totp.code(10);
        let factor = |kind| Factor {
            description: String::new(),
            created: 0,
            enable: true,
            kind,
        };
        let mut factors = Factors::default();
        factors.entries.insert("a".into(), factor(Kind::Totp(totp)));
        let keys = Keys(vec!["one".into(), "two".into()]);
        factors
            .entries
            .insert("recovery".into(), factor(Kind::Recovery(keys)));
        for _ in 0..PATIENCE {
            assert!(!factors.accept("totp:000000", 300));
        }
        assert!(!factors.accept(&format!("totp:{code}"), 300));
        assert!(factors.accept("recovery:one", 300));
        assert!(!factors.accept("recovery:one", 300));
        assert!(factors.accept(&format!("totp:{code}"), 300));
    }

    #[test]
    fn what_is_no_base_32_is_no_secret() {
        assert!(Totp::new("18").is_none());
        assert!(Totp::new("").is_none());
        assert!(Totp::from_uri("otpauth://hotp/x?secret=GEZDGNBV").is_none());
    }
}
