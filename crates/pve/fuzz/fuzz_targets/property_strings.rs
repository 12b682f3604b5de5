//! No text makes a reader panic, and what is printed reads as the same value.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use pve::prop;

fn holds_for<T: FromStr + Display + Debug + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let printed = value.to_string();
        assert!(printed.parse::<T>().is_ok_and(|again| again == value), "{text:?} was printed as {printed:?}");
    }
}

fuzz_target!(|text: &str| {
    holds_for::<prop::Disk>(text);
    holds_for::<prop::EfiDisk>(text);
    holds_for::<prop::TpmState>(text);
    holds_for::<prop::Net>(text);
    holds_for::<prop::IpConfig>(text);
    holds_for::<prop::Agent>(text);
    holds_for::<prop::Smbios>(text);
    holds_for::<prop::Cpu>(text);
    holds_for::<prop::Numa>(text);
    holds_for::<prop::Boot>(text);
    holds_for::<prop::Startup>(text);
    holds_for::<prop::CiCustom>(text);
    holds_for::<prop::HostPci>(text);
    holds_for::<prop::MountPoint>(text);
    holds_for::<prop::ContainerNet>(text);
    holds_for::<prop::Features>(text);
    holds_for::<prop::Size>(text);
    let _ = text.parse::<pve::Upid>();
    let _ = pve::Error::from_text(Some(500), text, std::collections::BTreeMap::new());
});
