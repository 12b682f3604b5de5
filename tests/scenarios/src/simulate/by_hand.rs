//! What people do on Proxmox VE's own page.

use std::fmt;

use pve::api::guest::{DeleteGuest, power::Stop};
use pve::{ConfigChange, GuestConfig, NodeName, Vmid};

use crate::Bed;

/// Something done to a guest behind the controllers' back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    Stop,
    Start,
    Tag,
    Processors,
    Destroy,
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stop => "stops",
            Self::Start => "starts",
            Self::Tag => "tags",
            Self::Processors => "gives processors to",
            Self::Destroy => "destroys",
        })
    }
}

impl Deed {
    /// Does it; says what came of it. What PVE refuses was not possible just then.
    pub(crate) async fn done(self, bed: &Bed, cluster: usize, node: &str, vmid: u32) -> String {
        let root = bed.root_of(cluster);
        let guest = root
            .node(&NodeName::new(node).unwrap())
            .qemu(Vmid::new(vmid).unwrap());
        let configure = async |key: &str, value: &str| {
            let change = ConfigChange::set(GuestConfig::new().with(key, value));
            guest.configure(&change).await
        };
        let done = match self {
            Self::Stop => guest.stop(Stop::default()).await.map(drop),
            Self::Start => guest.start().await.map(drop),
            Self::Tag => configure("tags", "by-hand").await,
            Self::Processors => configure("cores", "3").await,
            Self::Destroy => match guest.stop(Stop::default()).await {
                Ok(stopped) => {
                    let _ = root.wait(&stopped).await;
                    guest.delete(DeleteGuest::default()).await.map(drop)
                }
                Err(error) => Err(error),
            },
        };
        let how = if done.is_ok() { "" } else { "in vain " };
        format!("{how}{self} by hand")
    }
}
