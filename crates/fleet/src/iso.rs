//! A small ISO 9660 image with a handful of files in its root.
//!
//! This is what a NoCloud seed is: a volume labelled `cidata`. The plain ISO names are eight
//! upper-case characters, so the real names (`user-data`) are given twice: by Rock Ridge, which
//! Linux prefers, and by Joliet, which Windows reads. Dates are fixed, so the same files are the same
//! bytes, and a digest of the image says whether anything changed.
//!
//! ```text
//! sector 16  primary volume descriptor      19, 20  its path tables (little, big endian)
//!        17  Joliet volume descriptor       21, 22  Joliet's path tables
//!        18  terminator                     23      root directory, with Rock Ridge names
//!                                           24      root directory, with Joliet names
//!        25… the files, each from a sector of its own
//! ```

const SECTOR: usize = 2048;
const PRIMARY_ROOT: u32 = 23;
const JOLIET_ROOT: u32 = 24;
const FIRST_FILE: u32 = 25;

/// Why an image cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The directory does not fit its sector, or a name is unfit.
    #[error("file name '{0}' cannot be put on an image")]
    Name(String),
    /// Too many files.
    #[error("{0} files do not fit the root directory of an image")]
    Files(usize),
    /// A file is larger than the format can say.
    #[error("file '{0}' is too large for an image")]
    TooLarge(String),
    /// The label is too long or has characters beyond ASCII.
    #[error("'{0}' cannot be an image's label")]
    Label(String),
}

/// Writes an image with this label and these files.
pub fn image(label: &str, files: &[(&str, &[u8])]) -> Result<Vec<u8>, Error> {
    if label.is_empty() || label.len() > 16 || !label.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::Label(label.to_owned()));
    }
    // Directory records must be sorted by name; the plain names are numbered in that order.
    let mut files = files.to_vec();
    files.sort_by_key(|(name, _)| *name);
    if files.len() > 99 {
        return Err(Error::Files(files.len()));
    }
    let mut at = FIRST_FILE;
    let mut entries = Vec::new();
    for (index, (name, data)) in files.iter().enumerate() {
        if name.is_empty() || name.len() > 64 || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::Name((*name).to_owned()));
        }
        let size = u32::try_from(data.len()).map_err(|_| Error::TooLarge((*name).to_owned()))?;
        entries.push(Entry {
            plain: format!("F{index:02}.;1"),
            name,
            at,
            size,
        });
        at += size.div_ceil(2048);
    }
    let total = at;

    let mut out = vec![0u8; 16 * SECTOR];
    out.extend(descriptor(label, total, false));
    out.extend(descriptor(label, total, true));
    out.extend(terminator());
    for root in [PRIMARY_ROOT, JOLIET_ROOT] {
        out.extend(path_table(root.to_le_bytes(), 1u16.to_le_bytes()));
        out.extend(path_table(root.to_be_bytes(), 1u16.to_be_bytes()));
    }
    out.extend(sector(primary_root(&entries), files.len())?);
    out.extend(sector(joliet_root(&entries), files.len())?);
    for (_, data) in &files {
        out.extend_from_slice(data);
        out.resize(out.len().next_multiple_of(SECTOR), 0);
    }
    Ok(out)
}

struct Entry<'a> {
    plain: String,
    name: &'a str,
    at: u32,
    size: u32,
}

/// A sector is the unit records may not cross; one sector for the directory keeps this simple.
fn sector(mut bytes: Vec<u8>, files: usize) -> Result<Vec<u8>, Error> {
    if bytes.len() > SECTOR {
        return Err(Error::Files(files));
    }
    bytes.resize(SECTOR, 0);
    Ok(bytes)
}

fn both32(n: u32) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&n.to_le_bytes());
    out[4..].copy_from_slice(&n.to_be_bytes());
    out
}

fn both16(n: u16) -> [u8; 4] {
    let mut out = [0; 4];
    out[..2].copy_from_slice(&n.to_le_bytes());
    out[2..].copy_from_slice(&n.to_be_bytes());
    out
}

fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn padded(text: &str, len: usize, joliet: bool) -> Vec<u8> {
    let mut out = if joliet {
        ucs2(text)
    } else {
        text.as_bytes().to_vec()
    };
    while out.len() < len {
        if joliet && out.len() + 1 < len {
            out.extend([0, b' ']);
        } else {
            out.push(if joliet { 0 } else { b' ' });
        }
    }
    out.truncate(len);
    out
}

/// 1980-01-01 00:00:00 UTC in a directory record.
const DATE: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];

fn record(id: &[u8], at: u32, size: u32, directory: bool, system_use: &[u8]) -> Vec<u8> {
    let mut out = vec![0u8, 0];
    out.extend(both32(at));
    out.extend(both32(size));
    out.extend(DATE);
    out.push(if directory { 2 } else { 0 });
    out.extend([0, 0]);
    out.extend(both16(1));
    out.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
    out.extend(id);
    if id.len().is_multiple_of(2) {
        out.push(0);
    }
    out.extend(system_use);
    if !out.len().is_multiple_of(2) {
        out.push(0);
    }
    out[0] = u8::try_from(out.len()).unwrap_or(u8::MAX);
    out
}

/// POSIX attributes: mode, links, owner, group.
fn px(mode: u32, links: u32) -> Vec<u8> {
    let mut out = b"PX\x24\x01".to_vec();
    for n in [mode, links, 0, 0] {
        out.extend(both32(n));
    }
    out
}

/// The real name.
fn nm(name: &str) -> Vec<u8> {
    let mut out = b"NM".to_vec();
    out.push(u8::try_from(5 + name.len()).unwrap_or(u8::MAX));
    out.extend([1, 0]);
    out.extend(name.as_bytes());
    out
}

fn primary_root(entries: &[Entry<'_>]) -> Vec<u8> {
    let size = u32::try_from(SECTOR).unwrap_or(u32::MAX);
    // The first record of the root announces that Rock Ridge is in use.
    let mut announce = b"SP\x07\x01\xbe\xef\x00".to_vec();
    announce.extend(b"ER\x12\x01\x0a\x00\x00\x01RRIP_1991A");
    announce.extend(px(0o40_555, 2));
    let mut out = record(&[0], PRIMARY_ROOT, size, true, &announce);
    out.extend(record(&[1], PRIMARY_ROOT, size, true, &px(0o40_555, 2)));
    for entry in entries {
        let mut extra = px(0o100_400, 1);
        extra.extend(nm(entry.name));
        out.extend(record(
            entry.plain.as_bytes(),
            entry.at,
            entry.size,
            false,
            &extra,
        ));
    }
    out
}

fn joliet_root(entries: &[Entry<'_>]) -> Vec<u8> {
    let size = u32::try_from(SECTOR).unwrap_or(u32::MAX);
    let mut out = record(&[0], JOLIET_ROOT, size, true, &[]);
    out.extend(record(&[1], JOLIET_ROOT, size, true, &[]));
    for entry in entries {
        out.extend(record(&ucs2(entry.name), entry.at, entry.size, false, &[]));
    }
    out
}

fn path_table(root: [u8; 4], parent: [u8; 2]) -> Vec<u8> {
    let mut out = vec![1u8, 0];
    out.extend(root);
    out.extend(parent);
    out.extend([0, 0]);
    out.resize(SECTOR, 0);
    out
}

fn descriptor(label: &str, total: u32, joliet: bool) -> Vec<u8> {
    let (tables, root) = if joliet {
        (21u32, JOLIET_ROOT)
    } else {
        (19u32, PRIMARY_ROOT)
    };
    let mut out = vec![if joliet { 2u8 } else { 1u8 }];
    out.extend(b"CD001\x01\x00");
    out.extend(padded("", 32, joliet));
    out.extend(padded(label, 32, joliet));
    out.extend([0; 8]);
    out.extend(both32(total));
    let mut escapes = [0u8; 32];
    if joliet {
        escapes[..3].copy_from_slice(b"%/E");
    }
    out.extend(escapes);
    out.extend(both16(1));
    out.extend(both16(1));
    out.extend(both16(2048));
    out.extend(both32(10));
    out.extend(tables.to_le_bytes());
    out.extend([0; 4]);
    out.extend((tables + 1).to_be_bytes());
    out.extend([0; 4]);
    out.extend(record(&[0], root, 2048, true, &[]));
    for len in [128, 128, 128, 128, 37, 37, 37] {
        out.extend(padded("", len, joliet));
    }
    for _ in 0..4 {
        out.extend(b"0000000000000000\x00");
    }
    out.push(1);
    out.resize(SECTOR, 0);
    out
}

fn terminator() -> Vec<u8> {
    let mut out = b"\xffCD001\x01".to_vec();
    out.resize(SECTOR, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an image back through one of its two directories, as a driver would.
    fn files(image: &[u8], joliet: bool) -> Vec<(String, Vec<u8>)> {
        let le = |b: &[u8]| u32::from_le_bytes(b[..4].try_into().unwrap()) as usize;
        let volume = &image[if joliet { 17 } else { 16 } * SECTOR..];
        assert_eq!(&volume[1..6], b"CD001");
        let root = le(&volume[158..]);
        let directory = &image[root * SECTOR..(root + 1) * SECTOR];
        let mut found = Vec::new();
        let mut at = 0;
        while directory[at] != 0 {
            let record = &directory[at..at + directory[at] as usize];
            at += record.len();
            let id = &record[33..33 + record[32] as usize];
            if id == [0] || id == [1] {
                continue;
            }
            let name = if joliet {
                let units: Vec<u16> = id
                    .chunks(2)
                    .map(|c| u16::from_be_bytes([c[0], c[1]]))
                    .collect();
                String::from_utf16(&units).unwrap()
            } else {
                let mut system = &record[33 + id.len() + usize::from(id.len().is_multiple_of(2))..];
                let mut name = String::new();
                while system.len() > 4 {
                    let (entry, rest) = system.split_at(system[2] as usize);
                    if &entry[..2] == b"NM" {
                        name = String::from_utf8(entry[5..].to_vec()).unwrap();
                    }
                    system = rest;
                }
                name
            };
            let (start, size) = (le(&record[2..]) * SECTOR, le(&record[10..]));
            found.push((name, image[start..start + size].to_vec()));
        }
        found
    }

    #[test]
    fn both_directories_give_the_files_under_their_real_names() {
        let long = vec![7u8; 5000];
        let image = image(
            "cidata",
            &[
                ("user-data", &long),
                ("meta-data", b"x"),
                ("network-config", b""),
            ],
        )
        .unwrap();
        assert_eq!(image.len() % SECTOR, 0);
        let expected = vec![
            ("meta-data".to_owned(), b"x".to_vec()),
            ("network-config".to_owned(), Vec::new()),
            ("user-data".to_owned(), long),
        ];
        assert_eq!(files(&image, false), expected);
        assert_eq!(files(&image, true), expected);
    }

    #[test]
    fn the_same_files_are_the_same_bytes_in_any_order() {
        let one = image("cidata", &[("a", b"1"), ("b", b"2")]).unwrap();
        let two = image("cidata", &[("b", b"2"), ("a", b"1")]).unwrap();
        assert_eq!(one, two);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(image("", &[]).is_err());
        assert!(image("cidata", &[("bad name", b"")]).is_err());
        let names: Vec<String> = (0..60)
            .map(|i| format!("file-with-a-long-name-{i}"))
            .collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &b""[..])).collect();
        assert_eq!(image("cidata", &many), Err(Error::Files(60)));
    }
}
