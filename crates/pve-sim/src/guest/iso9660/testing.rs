//! A writer just large enough to make seeds for tests.

const SECTOR: usize = 2048;

fn both32(value: u32) -> Vec<u8> {
    [value.to_le_bytes(), value.to_be_bytes()].concat()
}

fn record(name: &[u8], sector: u32, size: u32, directory: bool, system_use: &[u8]) -> Vec<u8> {
    let pad = usize::from(name.len().is_multiple_of(2));
    let length = 33 + name.len() + pad + system_use.len();
    let length = length + length % 2;
    let mut out = vec![u8::try_from(length).unwrap(), 0];
    out.extend(both32(sector));
    out.extend(both32(size));
    out.extend([0; 7]);
    out.extend([if directory { 2 } else { 0 }, 0, 0, 1, 0, 0, 1]);
    out.push(u8::try_from(name.len()).unwrap());
    out.extend(name);
    out.extend(vec![0; pad]);
    out.extend(system_use);
    out.resize(length, 0);
    out
}

fn descriptor(kind: u8, label: &[u8], root: &[u8]) -> Vec<u8> {
    let mut block = vec![0_u8; SECTOR];
    block[0] = kind;
    block[1..6].copy_from_slice(b"CD001");
    block[6] = 1;
    block[40..40 + label.len()].copy_from_slice(label);
    if kind == 2 {
        block[88..91].copy_from_slice(b"%/E");
    }
    block[156..156 + root.len()].copy_from_slice(root);
    block
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// An image with `files` in its root, with the name extensions asked for.
pub(crate) fn image(label: &str, files: &[(&str, &[u8])], rock: bool, joliet: bool) -> Vec<u8> {
    let (plain_dir, joliet_dir, mut next) = (20_u32, 21_u32, 22_u32);
    let mut data = Vec::new();
    let dots = |sector: u32, system_use: &[u8]| {
        let mut dir = record(&[0], sector, 2048, true, system_use);
        dir.extend(record(&[1], sector, 2048, true, &[]));
        dir
    };
    let sp: &[u8] = if rock { b"SP\x07\x01\xbe\xef\x00" } else { &[] };
    let (mut plain, mut wide) = (dots(plain_dir, sp), dots(joliet_dir, &[]));
    for (index, (name, content)) in files.iter().enumerate() {
        let size = u32::try_from(content.len()).unwrap();
        let mut nm = Vec::new();
        if rock {
            nm.extend([b'N', b'M', u8::try_from(name.len() + 5).unwrap(), 1, 0]);
            nm.extend(name.as_bytes());
        }
        plain.extend(record(
            format!("FILE{index}.;1").as_bytes(),
            next,
            size,
            false,
            &nm,
        ));
        wide.extend(record(&utf16(name), next, size, false, &[]));
        let mut block = content.to_vec();
        block.resize(content.len().div_ceil(SECTOR).max(1) * SECTOR, 0);
        next += u32::try_from(block.len() / SECTOR).unwrap();
        data.extend(block);
    }
    let mut out = vec![0_u8; 16 * SECTOR];
    let mut label_plain = label.as_bytes().to_vec();
    label_plain.resize(32, b' ');
    out.extend(descriptor(
        1,
        &label_plain,
        &record(&[0], plain_dir, 2048, true, &[]),
    ));
    if joliet {
        out.extend(descriptor(
            2,
            &utf16(label),
            &record(&[0], joliet_dir, 2048, true, &[]),
        ));
    }
    out.extend(descriptor(255, &[], &[]));
    out.resize(20 * SECTOR, 0);
    plain.resize(SECTOR, 0);
    wide.resize(SECTOR, 0);
    out.extend(plain);
    out.extend(wide);
    out.extend(data);
    out
}
