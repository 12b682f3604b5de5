//! Password hashes as `crypt(3)` makes them with SHA-256: what PVE stores for `cipassword`.

use rand::RngExt as _;
use rand::rngs::StdRng;
use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const ROUNDS: usize = 5000;

/// Hashes a password with a fresh salt: `$5$salt$hash`.
pub(crate) fn crypt(password: &str, rng: &mut StdRng) -> String {
    let salt: String = (0..8)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect();
    with_salt(password, &salt)
}

fn with_salt(password: &str, salt: &str) -> String {
    let (key, salt_bytes) = (password.as_bytes(), salt.as_bytes());
    let both = Sha256::digest([key, salt_bytes, key].concat());
    let mut first = Sha256::new();
    first.update(key);
    first.update(salt_bytes);
    first.update(stretch(&both, key.len()));
    let mut bits = key.len();
    while bits > 0 {
        if bits & 1 == 1 {
            first.update(both);
        } else {
            first.update(key);
        }
        bits >>= 1;
    }
    let mut digest = first.finalize();
    let keys = stretch(&Sha256::digest(key.repeat(key.len())), key.len());
    let salts = stretch(
        &Sha256::digest(salt_bytes.repeat(16 + usize::from(digest[0]))),
        salt_bytes.len(),
    );
    for round in 0..ROUNDS {
        let mut next = Sha256::new();
        if round % 2 == 1 {
            next.update(&keys);
        } else {
            next.update(digest);
        }
        if round % 3 != 0 {
            next.update(&salts);
        }
        if round % 7 != 0 {
            next.update(&keys);
        }
        if round % 2 == 1 {
            next.update(digest);
        } else {
            next.update(&keys);
        }
        digest = next.finalize();
    }
    format!("$5${salt}${}", encode(&digest))
}

/// The digest repeated to a length.
fn stretch(digest: &[u8], length: usize) -> Vec<u8> {
    digest.iter().copied().cycle().take(length).collect()
}

/// crypt's own base 64 over its own order of bytes.
fn encode(digest: &[u8]) -> String {
    const ORDER: [(usize, usize, usize); 10] = [
        (0, 10, 20),
        (21, 1, 11),
        (12, 22, 2),
        (3, 13, 23),
        (24, 4, 14),
        (15, 25, 5),
        (6, 16, 26),
        (27, 7, 17),
        (18, 28, 8),
        (9, 19, 29),
    ];
    let mut out = String::with_capacity(43);
    let mut put = |mut word: u32, count: usize| {
        for _ in 0..count {
            out.push(char::from(ALPHABET[(word & 63) as usize]));
            word >>= 6;
        }
    };
    let byte = |at: usize| u32::from(digest[at]);
    for (a, b, c) in ORDER {
        put(byte(a) << 16 | byte(b) << 8 | byte(c), 4);
    }
    put(byte(31) << 8 | byte(30), 3);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_crypt() {
        assert_eq!(
            with_salt("Hello world!", "saltstring"),
            "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"
        );
    }
}
