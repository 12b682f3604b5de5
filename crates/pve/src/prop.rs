//! Property strings: `local-lvm:vm-100-disk-0,discard=on,size=32G` as typed values.
//!
//! Many keys of a guest hold a list of sub-keys in one text. Each such list is a struct here, with `FromStr` to read
//! it and `Display` to print it. The first item of a list may leave its key out, which the structs know; sub-keys
//! that a newer server has and this crate has not are kept in `other` and printed again.
//!
//! ```
//! use pve::prop::{Disk, Net};
//!
//! let mut disk: Disk = "local-lvm:vm-100-disk-0,discard=on,size=32G,shiny=1".parse()?;
//! assert_eq!(disk.size.map(|size| size.bytes()), Some(32 << 30));
//! disk.ssd = Some(true);
//! assert_eq!(disk.to_string(), "local-lvm:vm-100-disk-0,discard=on,size=32G,ssd=1,shiny=1");
//!
//! let net: Net = "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=20".parse()?;
//! assert_eq!(net.tag, Some(20));
//! # Ok::<(), pve::prop::Error>(())
//! ```
//!
//! Reading what was printed gives the same value back, always. A text that cannot be part of such a list (one with a
//! comma in it) is refused when the value is made, so that no value can smuggle in a sub-key.

#[macro_use]
mod macros;

mod device;
mod disk;
mod lxc;
mod net;
mod system;
mod value;

#[cfg(test)]
mod tests;

pub use self::device::{Audio, HostPci, Rng, Usb, Vga, VirtioFs, Watchdog};
pub use self::disk::{Disk, DiskFile, EfiDisk, Size, TpmState};
pub use self::lxc::{ContainerNet, Features, MountPoint};
pub use self::net::{Card, Cidr4, Cidr6, Ip4, Ip6, IpConfig, Net};
pub use self::system::{Agent, Boot, CiCustom, Cpu, Machine, Numa, NumaPolicy, Smbios, Startup};
pub use self::value::{Decimal, List, Other, Value, Word};

/// Why a text is not a property string of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An item has neither a key nor a place where the key may be left out.
    #[error("'{0}' has no key")]
    NoKey(String),
    /// A key has an empty value.
    #[error("'{0}' has no value")]
    NoValue(String),
    /// A key is given twice.
    #[error("'{0}' is given twice")]
    Twice(String),
    /// A key that must be there is not.
    #[error("'{0}' is missing")]
    Missing(&'static str),
    /// A value cannot be read.
    #[error("'{key}' is '{value}', which is not {expected}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A text cannot be part of a property string.
    #[error(
        "'{0}' cannot be part of a property string: it is empty or has a comma or a control character"
    )]
    Word(String),
}

/// The items of a property string, in order; the key is absent where it was left out.
pub(crate) fn items(text: &str) -> Result<Vec<(Option<&str>, &str)>, Error> {
    let mut items = Vec::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        match part.split_once('=') {
            Some(("", _)) => return Err(Error::NoKey(part.to_owned())),
            Some((key, "")) => return Err(Error::NoValue(key.to_owned())),
            Some((key, value)) => items.push((Some(key), value)),
            None => items.push((None, part)),
        }
    }
    Ok(items)
}
