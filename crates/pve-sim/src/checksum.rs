//! Checksums of files, by the algorithms PVE offers.

use std::fmt::Write as _;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

/// The names of all algorithms, in the order PVE lists them.
pub(crate) const ALGORITHMS: &[&str] = &["md5", "sha1", "sha224", "sha256", "sha384", "sha512"];

/// A checksum that is computed piece by piece.
pub(crate) enum Checksum {
    /// Nobody asked for one.
    None,
    Md5(Md5),
    Sha1(Sha1),
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Checksum {
    /// The algorithm of that name.
    pub(crate) fn by_name(name: Option<&str>) -> Self {
        match name {
            Some("md5") => Self::Md5(Md5::new()),
            Some("sha1") => Self::Sha1(Sha1::new()),
            Some("sha224") => Self::Sha224(Sha224::new()),
            Some("sha256") => Self::Sha256(Sha256::new()),
            Some("sha384") => Self::Sha384(Sha384::new()),
            Some("sha512") => Self::Sha512(Sha512::new()),
            _ => Self::None,
        }
    }

    /// Takes more of the file.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Md5(hash) => hash.update(bytes),
            Self::Sha1(hash) => hash.update(bytes),
            Self::Sha224(hash) => hash.update(bytes),
            Self::Sha256(hash) => hash.update(bytes),
            Self::Sha384(hash) => hash.update(bytes),
            Self::Sha512(hash) => hash.update(bytes),
        }
    }

    /// The checksum in lower-case hex.
    pub(crate) fn finish(self) -> Option<String> {
        let bytes = match self {
            Self::None => return None,
            Self::Md5(hash) => hash.finalize().to_vec(),
            Self::Sha1(hash) => hash.finalize().to_vec(),
            Self::Sha224(hash) => hash.finalize().to_vec(),
            Self::Sha256(hash) => hash.finalize().to_vec(),
            Self::Sha384(hash) => hash.finalize().to_vec(),
            Self::Sha512(hash) => hash.finalize().to_vec(),
        };
        Some(bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_its_own_length() {
        let lengths = ALGORITHMS.iter().map(|name| {
            let mut sum = Checksum::by_name(Some(name));
            sum.update(b"hello");
            sum.finish().map(|text| text.len())
        });
        let expected = [32, 40, 56, 64, 96, 128].map(Some);
        assert_eq!(lengths.collect::<Vec<_>>(), expected);
        let mut sum = Checksum::by_name(Some("md5"));
        sum.update(b"hello");
        assert_eq!(
            sum.finish().as_deref(),
            Some("5d41402abc4b2a76b9719d911017c592")
        );
    }
}
