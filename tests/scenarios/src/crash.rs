//! Crashes at every single call.
//!
//! A [`Flow`] is one thing people do. It is run once to see how many calls the controllers make for it; then it is run again
//! for each of these calls, twice: the controllers end before the call is sent, and after it was carried out and before its
//! answer arrived. They start again, knowing nothing but what they stored, and everything must come to rest as if
//! nothing had happened.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use api::vm::{
    Container, Provider, VMBackup, VMClone, VMImage, VMMigration, VMRestore, VMSet, VMSnapshot,
    VirtualMachine,
};
use kube::api::DeleteParams;
use serde_json::json;

use crate::{
    Bed, Guest,
    gate::CrashPoint,
    objects::{CONTENT, URL},
};

/// One thing people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A machine from a template, with first-boot data.
    Create,
    /// A machine copied in full, in one call.
    CreateFull,
    /// Processors, a larger disk and a new disk, with a restart.
    Reconfigure,
    /// Off and on again.
    Power,
    /// A snapshot with memory.
    Snapshot,
    /// Back to a snapshot.
    Revert,
    /// A snapshot goes.
    RemoveSnapshot,
    /// A copy of a running machine.
    Clone,
    /// To another node.
    Migrate,
    /// A backup.
    Backup,
    /// A machine of a backup.
    Restore,
    /// A machine of an image from the web, which becomes a template first, and goes again with its machine and its object.
    Image,
    /// A running machine goes.
    Delete,
    /// A container.
    Container,
    /// A container goes.
    DeleteContainer,
    /// A set gets another machine and loses one.
    Scale,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Create,
        Self::CreateFull,
        Self::Reconfigure,
        Self::Power,
        Self::Snapshot,
        Self::Revert,
        Self::RemoveSnapshot,
        Self::Clone,
        Self::Migrate,
        Self::Backup,
        Self::Restore,
        Self::Image,
        Self::Delete,
        Self::Container,
        Self::DeleteContainer,
        Self::Scale,
    ];

    /// Brings everything to where the flow begins.
    async fn prepare(self, bed: &Bed) {
        bed.apply(SETUP).await;
        bed.until_ready::<Provider>("pve").await;
        match self {
            Self::Create | Self::CreateFull | Self::Container => {}
            Self::Image => bed.pve().control().serve(URL, CONTENT),
            Self::DeleteContainer => {
                bed.apply(CONTAINER).await;
                bed.until_ready::<Container>("cache").await;
            }
            Self::Scale => {
                bed.apply(SET).await;
                bed.until_ready::<VMSet>("web").await;
            }
            _ => {
                bed.apply(MACHINE).await;
                bed.until_ready::<VirtualMachine>("web-server").await;
                bed.sleep(Duration::from_mins(1)).await;
            }
        }
        if self == Self::Restore {
            bed.apply(BACKUP).await;
            bed.until_ready::<VMBackup>("nightly").await;
        }
        if matches!(self, Self::Revert | Self::RemoveSnapshot) {
            bed.apply(SNAPSHOT).await;
            bed.until_ready::<VMSnapshot>("before").await;
        }
        if self == Self::Revert {
            let tags = json!({ "tags": ["after"] });
            bed.change::<VirtualMachine>("web-server", tags).await;
            bed.until_ready::<VirtualMachine>("web-server").await;
        }
    }

    /// How many things are wished for, one after the other.
    fn steps(self) -> u8 {
        match self {
            Self::Power | Self::Scale | Self::Image => 2,
            _ => 1,
        }
    }

    /// Wishes for something.
    async fn begin(self, bed: &Bed, step: u8) {
        match self {
            Self::Create => bed.apply(MACHINE).await,
            Self::CreateFull => {
                let copied = "imageRef: { name: local }\n  linkedClone: false";
                bed.apply(&MACHINE.replace("imageRef: { name: ubuntu }", copied))
                    .await;
            }
            Self::Reconfigure => {
                let spec = json!({
                    "cpus": 4, "updatePolicy": "RestartIfNeeded",
                    "disks": [{ "name": "root", "size": "50Gi" }, { "name": "data", "size": "5Gi", "storage": "local-lvm" }],
                });
                bed.change::<VirtualMachine>("web-server", spec).await;
            }
            Self::Power => {
                let power = json!({ "powerState": if step == 0 { "Off" } else { "On" } });
                bed.change::<VirtualMachine>("web-server", power).await;
            }
            Self::Snapshot => bed.apply(SNAPSHOT).await,
            Self::Revert => {
                let to = json!({ "snapshot": { "revertToRef": { "name": "before" } } });
                bed.change::<VirtualMachine>("web-server", to).await;
            }
            Self::RemoveSnapshot => {
                let api = bed.api::<VMSnapshot>();
                api.delete("before", &DeleteParams::default())
                    .await
                    .unwrap();
            }
            Self::Clone => bed.apply(CLONE).await,
            Self::Migrate => bed.apply(MIGRATION).await,
            Self::Backup => bed.apply(BACKUP).await,
            Self::Restore => bed.apply(RESTORE).await,
            Self::Image if step == 0 => {
                bed.apply(&IMAGE.replace("URL", URL)).await;
                let of_it = "imageRef: { name: noble }";
                bed.apply(&MACHINE.replace("imageRef: { name: ubuntu }", of_it))
                    .await;
            }
            Self::Image => {
                let now = DeleteParams::default();
                let machines = bed.api::<VirtualMachine>();
                machines.delete("web-server", &now).await.unwrap();
                bed.api::<VMImage>().delete("noble", &now).await.unwrap();
            }
            Self::Delete => {
                let api = bed.api::<VirtualMachine>();
                api.delete("web-server", &DeleteParams::default())
                    .await
                    .unwrap();
            }
            Self::Container => bed.apply(CONTAINER).await,
            Self::DeleteContainer => {
                let api = bed.api::<Container>();
                api.delete("cache", &DeleteParams::default()).await.unwrap();
            }
            Self::Scale => {
                let replicas = json!({ "replicas": if step == 0 { 2 } else { 1 } });
                bed.change::<VMSet>("web", replicas).await;
            }
        }
    }

    /// Waits for the end, and sees that it is the right one.
    async fn end(self, bed: &Bed, step: u8) {
        match self {
            Self::Create | Self::CreateFull => {
                bed.until_ready::<VirtualMachine>("web-server").await;
                assert!(bed.guest("web-server").await.running);
            }
            Self::Reconfigure => {
                bed.until_ready::<VirtualMachine>("web-server").await;
                let guest = bed.guest("web-server").await;
                assert_eq!(guest.key("cores"), "4");
                assert!(guest.config.values().any(|v| v.contains("size=50G")));
                assert!(guest.config.values().any(|v| v.contains("size=5G")));
            }
            Self::Power => {
                bed.until_ready::<VirtualMachine>("web-server").await;
                assert_eq!(bed.guest("web-server").await.running, step == 1);
            }
            Self::Snapshot => {
                bed.until_ready::<VMSnapshot>("before").await;
                assert_eq!(bed.snapshots("web-server").await.len(), 1);
            }
            Self::RemoveSnapshot => {
                bed.until_gone::<VMSnapshot>("before").await;
                assert_eq!(bed.snapshots("web-server").await, Vec::<String>::new());
            }
            Self::Revert => {
                bed.until("web-server", "set back", |vm: &VirtualMachine| {
                    let status = vm.status.as_ref();
                    status.is_some_and(|s| s.reverted_to.as_deref() == Some("before"))
                })
                .await;
                bed.until_ready::<VirtualMachine>("web-server").await;
                assert_eq!(bed.tasks("qmrollback").await, ["OK"], "once, and well");
            }
            Self::Clone => {
                bed.until_ready::<VMClone>("web-copy").await;
                assert!(bed.guest("web-copy").await.running);
            }
            Self::Migrate => {
                let moved: VMMigration = bed.until_ready("move").await;
                let status = moved.status.unwrap();
                let node = Some(bed.guest("web-server").await.node);
                assert_eq!(status.target_node, node);
                assert_ne!(status.source_node, node);
            }
            Self::Backup => {
                let backup: VMBackup = bed.until_ready("nightly").await;
                let volume = backup.status.unwrap().volume.unwrap();
                assert_eq!(bed.backups("nfs").await, [volume]);
            }
            Self::Restore => {
                bed.until_ready::<VMRestore>("again").await;
                assert!(bed.guest("web-again").await.running);
            }
            Self::Image if step == 0 => {
                bed.until_ready::<VirtualMachine>("web-server").await;
                let made = bed.guests().await;
                let ours =
                    |guest: &&Guest| guest.template && guest.key("tags").contains("oxmox-image-");
                assert_eq!(made.iter().filter(ours).count(), 1);
            }
            Self::Image => {
                bed.until_gone::<VirtualMachine>("web-server").await;
                bed.until_gone::<VMImage>("noble").await;
            }
            Self::Delete => bed.until_gone::<VirtualMachine>("web-server").await,
            Self::Container => {
                bed.until_ready::<Container>("cache").await;
                assert!(bed.guest("cache").await.running);
            }
            Self::DeleteContainer => bed.until_gone::<Container>("cache").await,
            Self::Scale => {
                bed.until_ready::<VMSet>("web").await;
                if step == 1 {
                    bed.until_gone::<VirtualMachine>("web-1").await;
                }
                let machines = bed.guests().await.into_iter();
                let machines = machines.filter(|guest| guest.name.starts_with("web-"));
                assert_eq!(machines.count(), if step == 0 { 2 } else { 1 });
            }
        }
    }

    /// Runs the flow once with a crash; returns the controllers' calls and everything that is wrong.
    async fn once(self, point: CrashPoint) -> (Vec<String>, Vec<String>) {
        let mut bed = Bed::new().await;
        let foreign = bed.foreign().await;
        self.prepare(&bed).await;
        bed.line().crash_at(point);
        let mut reached = false;
        for step in 0..self.steps() {
            self.begin(&bed, step).await;
            let crashes = tokio::select! {
                biased;
                () = bed.line().crashed() => true,
                () = self.end(&bed, step) => false,
            };
            if crashes {
                reached = true;
                restart(&mut bed).await;
                self.end(&bed, step).await;
            }
        }
        // Long enough for what is cleaned up afterwards.
        let after = tokio::time::timeout(Duration::from_mins(3), bed.line().crashed());
        if after.await.is_ok() {
            reached = true;
            restart(&mut bed).await;
        }
        let journal = bed.line().journal();
        bed.sleep(Duration::from_mins(2)).await;
        let mut wrong = bed.check(&foreign).await;
        if !reached && point != CrashPoint::never() {
            wrong.push("the call was never made".to_owned());
        }
        (journal, wrong)
    }

    fn run(self, point: CrashPoint) -> (Vec<String>, Vec<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(self.once(point))
    }

    /// Crashes at every call, or at every `stride`-th, on `threads` threads.
    pub fn everywhere(self, stride: usize, threads: usize) -> Crashes {
        let (calls, wrong) = self.run(CrashPoint::never());
        assert_eq!(wrong, Vec::<String>::new(), "{self:?} without any crash");
        let points: Vec<CrashPoint> = (1..=calls.len() as u64)
            .flat_map(|call| [false, true].map(|carried_out| CrashPoint { call, carried_out }))
            .step_by(stride.max(1))
            .collect();
        let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    while let Some(point) = points.get(next.fetch_add(1, Ordering::SeqCst)) {
                        let found = match catch_unwind(AssertUnwindSafe(|| self.run(*point))) {
                            Ok((_, found)) => found,
                            Err(panic) => vec![said(&*panic)],
                        };
                        if !found.is_empty() {
                            let at = calls.get(usize::try_from(point.call - 1).unwrap());
                            let text = format!("{self:?} at {point:?} ({at:?}): {found:#?}");
                            wrong
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(text);
                        }
                    }
                });
            }
        });
        let mut wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
        wrong.sort();
        Crashes {
            flow: self,
            calls: calls.len(),
            points: points.len(),
            wrong,
        }
    }
}

pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "it panicked".to_owned())
}

async fn restart(bed: &mut Bed) {
    bed.crash_operator().await;
    bed.line().crash_at(CrashPoint::never());
    bed.start_operator();
}

/// What came of crashing a flow everywhere.
#[derive(Debug)]
pub struct Crashes {
    /// The flow.
    pub flow: Flow,
    /// The calls it makes, counting those that change something and all to Proxmox VE.
    pub calls: usize,
    /// The points it was crashed at.
    pub points: usize,
    /// Everything that was wrong afterwards.
    pub wrong: Vec<String>,
}

const SETUP: &str = include_str!("../tests/it/manifests/simulation.yaml");

const MACHINE: &str = r##"
apiVersion: infra.virtrigaud.io/v1beta1
kind: VirtualMachine
metadata: { name: web-server }
spec:
  providerRef: { name: pve }
  classRef: { name: small }
  imageRef: { name: ubuntu }
  networks: [{ name: lan }]
  disks: [{ name: root, size: 20Gi }]
  userData: { cloudInit: { inline: "#cloud-config\npackages: [nginx]\n" } }
"##;

const SNAPSHOT: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSnapshot
metadata: { name: before }
spec: { vmRef: { name: web-server }, includeMemory: true }
";

const CLONE: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMClone
metadata: { name: web-copy }
spec: { sourceVMRef: { name: web-server } }
";

const MIGRATION: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMMigration
metadata: { name: move }
spec: { vmRef: { name: web-server }, withLocalDisks: true }
";

const BACKUP: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMBackup
metadata: { name: nightly }
spec: { vmRef: { name: web-server }, storage: nfs }
";

const RESTORE: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMRestore
metadata: { name: again }
spec: { backupRef: { name: nightly }, targetName: web-again, start: true }
";

const IMAGE: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMImage
metadata: { name: noble }
spec: { source: \"URL\" }
";

const CONTAINER: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: Container
metadata: { name: cache }
spec:
  providerRef: { name: pve }
  template: local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst
  cpus: 1
  memory: 512Mi
  rootFs: { size: 4Gi, storage: local-lvm }
  networks: [{ name: lan }]
";

const SET: &str = "
apiVersion: infra.virtrigaud.io/v1beta1
kind: VMSet
metadata: { name: web }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      providerRef: { name: pve }
      classRef: { name: small }
      imageRef: { name: ubuntu }
";
