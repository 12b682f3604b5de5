//! Reads ISO 9660 images the way a guest's kernel would: far enough to find cloud-init's files.
//!
//! A NoCloud seed is a small image whose volume label is `cidata`. Its files have long lower-case
//! names (`user-data`), which plain ISO 9660 cannot hold, so writers add Joliet (a second directory
//! tree in UTF-16) or Rock Ridge (names in the system use area of each record). Linux prefers Rock
//! Ridge, then Joliet, then the short names; so does this reader.

use std::collections::BTreeMap;

use bytes::Bytes;

const SECTOR: usize = 2048;
/// Deeper trees than a seed can have; stops loops in broken images.
const MAX_DEPTH: usize = 8;
const MAX_FILES: usize = 4096;

/// Why an image cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("no ISO 9660 volume descriptor")]
    NoVolume,
    #[error("directory record reaches beyond the image")]
    Truncated,
    #[error("directory tree is too deep or too large")]
    TooLarge,
}

/// The files of an image by their path, and its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) label: String,
    pub(crate) files: BTreeMap<String, Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Plain,
    Joliet,
}

struct Descriptor {
    label: String,
    root: (usize, usize),
    names: Names,
}

/// Reads every file of an image.
pub(crate) fn read(image: &Bytes) -> Result<Image, Error> {
    let primary = descriptor(image, Names::Plain).ok_or(Error::NoVolume)?;
    let mut files = BTreeMap::new();
    let rock_ridge = walk(image, &primary, primary.root, "", 0, &mut files)?;
    if !rock_ridge && let Some(joliet) = descriptor(image, Names::Joliet) {
        files.clear();
        walk(image, &joliet, joliet.root, "", 0, &mut files)?;
    }
    Ok(Image {
        label: primary.label,
        files,
    })
}

fn descriptor(image: &[u8], wanted: Names) -> Option<Descriptor> {
    for sector in 16..64 {
        let block = image.get(sector * SECTOR..(sector + 1) * SECTOR)?;
        if &block[1..6] != b"CD001" {
            return None;
        }
        let names = match block[0] {
            1 => Names::Plain,
            2 if [b"%/@", b"%/C", b"%/E"]
                .iter()
                .any(|escape| block[88..91] == escape[..]) =>
            {
                Names::Joliet
            }
            255 => return None,
            _ => continue,
        };
        if names == wanted {
            let root = (
                le32(block, 158)? as usize * SECTOR,
                le32(block, 166)? as usize,
            );
            return Some(Descriptor {
                label: text(&block[40..72], names),
                root,
                names,
            });
        }
    }
    None
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn text(bytes: &[u8], names: Names) -> String {
    let text = match names {
        Names::Plain => String::from_utf8_lossy(bytes).into_owned(),
        Names::Joliet => {
            let units: Vec<u16> = bytes
                .chunks_exact(2)
                .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
                .collect();
            String::from_utf16_lossy(&units)
        }
    };
    text.trim_end_matches([' ', '\0']).to_owned()
}

/// Collects the files below one directory; tells whether it carries Rock Ridge.
fn walk(
    image: &Bytes,
    volume: &Descriptor,
    (start, length): (usize, usize),
    prefix: &str,
    depth: usize,
    files: &mut BTreeMap<String, Bytes>,
) -> Result<bool, Error> {
    if depth > MAX_DEPTH {
        return Err(Error::TooLarge);
    }
    let end = start.checked_add(length).ok_or(Error::Truncated)?;
    let extent = image.get(start..end).ok_or(Error::Truncated)?;
    let mut rock_ridge = false;
    let mut at = 0;
    while at < extent.len() {
        let size = usize::from(extent[at]);
        if size == 0 {
            // Records do not cross sectors: the rest of this one is padding.
            at = (at / SECTOR + 1) * SECTOR;
            continue;
        }
        let record = extent.get(at..at + size).ok_or(Error::Truncated)?;
        at += size;
        if size < 34 {
            return Err(Error::Truncated);
        }
        let name_length = usize::from(record[32]);
        let raw = record.get(33..33 + name_length).ok_or(Error::Truncated)?;
        let system_use = record.get(33 + name_length + usize::from(name_length % 2 == 0)..);
        let long = system_use.and_then(rock_ridge_name);
        let dot = name_length == 1 && raw[0] <= 1;
        rock_ridge |= long.is_some() || (dot && system_use.is_some_and(has_rock_ridge));
        if dot {
            continue;
        }
        let name = long.unwrap_or_else(|| plain_name(&text(raw, volume.names), volume.names));
        let path = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}/{name}")
        };
        let location = le32(record, 2).ok_or(Error::Truncated)? as usize * SECTOR;
        let bytes = le32(record, 10).ok_or(Error::Truncated)? as usize;
        if record[25] & 2 != 0 {
            rock_ridge |= walk(image, volume, (location, bytes), &path, depth + 1, files)?;
        } else {
            let end = location
                .checked_add(bytes)
                .filter(|end| *end <= image.len());
            let end = end.ok_or(Error::Truncated)?;
            files.insert(path, image.slice(location..end));
            if files.len() > MAX_FILES {
                return Err(Error::TooLarge);
            }
        }
    }
    Ok(rock_ridge)
}

/// `USER_DAT.;1` as Linux shows it without extensions: lower case, no version.
fn plain_name(name: &str, names: Names) -> String {
    let name = name.split(';').next().unwrap_or_default();
    match names {
        Names::Plain => name.trim_end_matches('.').to_ascii_lowercase(),
        Names::Joliet => name.to_owned(),
    }
}

/// The `NM` entries of a record's system use area, joined.
fn rock_ridge_name(area: &[u8]) -> Option<String> {
    let mut name = Vec::new();
    let mut found = false;
    for entry in entries(area) {
        if &entry[..2] == b"NM" && entry.len() > 5 && entry[4] & 6 == 0 {
            name.extend_from_slice(&entry[5..]);
            found = true;
        }
    }
    found.then(|| String::from_utf8_lossy(&name).into_owned())
}

fn has_rock_ridge(area: &[u8]) -> bool {
    entries(area).any(|entry| matches!(&entry[..2], b"SP" | b"RR" | b"PX" | b"ER"))
}

fn entries(area: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = area;
    std::iter::from_fn(move || {
        let length = usize::from(*rest.get(2)?);
        if length < 4 || length > rest.len() {
            return None;
        }
        let (entry, tail) = rest.split_at(length);
        rest = tail;
        Some(entry)
    })
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(image: Vec<u8>) -> Vec<String> {
        read(&Bytes::from(image))
            .unwrap()
            .files
            .into_keys()
            .collect()
    }

    #[test]
    fn long_names_come_from_rock_ridge_or_joliet() {
        let files: &[(&str, &[u8])] =
            &[("user-data", b"#cloud-config\n"), ("meta-data", b"x: y\n")];
        let expected = ["meta-data", "user-data"];
        assert_eq!(names(testing::image("cidata", files, true, true)), expected);
        assert_eq!(
            names(testing::image("cidata", files, true, false)),
            expected
        );
        assert_eq!(
            names(testing::image("cidata", files, false, true)),
            expected
        );
        assert_eq!(
            names(testing::image("cidata", files, false, false)),
            ["file0", "file1"]
        );
    }

    #[test]
    fn label_and_content_are_those_written() {
        let big = vec![7_u8; 5000];
        let bytes = testing::image("cidata", &[("user-data", &big)], true, true);
        let image = read(&Bytes::from(bytes)).unwrap();
        assert_eq!(image.label, "cidata");
        assert_eq!(image.files["user-data"], big);
    }

    #[test]
    fn rubbish_is_refused() {
        assert_eq!(read(&Bytes::from_static(b"no image")), Err(Error::NoVolume));
        assert_eq!(read(&Bytes::from(vec![0; 100_000])), Err(Error::NoVolume));
    }

    proptest::proptest! {
        #[test]
        fn a_damaged_image_never_panics(at in 0_usize..50_000, byte: u8, cut in 0_usize..60_000) {
            let mut bytes = testing::image("cidata", &[("user-data", b"hello")], true, true);
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
            bytes.truncate(cut.max(1));
            let _ = read(&Bytes::from(bytes));
        }
    }
}
