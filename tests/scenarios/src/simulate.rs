//! Random lives of machines, with everything that can go wrong, from one seed.
//!
//! A run does random things to a few machines while Proxmox VE misbehaves and the controllers crash between two
//! calls. Then the faults end, everything comes to rest, and the invariants are checked. The same seed takes the
//! same course, so a failure is replayed by its number; the story says what was done when.

use std::{fmt::Write as _, time::Duration};

use api::vm::{VMSnapshot, VirtualMachine, condition};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use pve_sim::{Action, Fault};
use serde_json::json;

use crate::{Bed, CrashPoint};

/// What happened in one run.
#[derive(Debug)]
pub struct Story {
    /// The seed.
    pub seed: u64,
    /// What was done, in order.
    pub lines: Vec<String>,
    /// What was wrong in the end; empty if nothing.
    pub wrong: Vec<String>,
    /// Calls of the controllers.
    pub calls: u64,
    /// How often the controllers crashed.
    pub crashes: u32,
}

impl Story {
    /// The story for a person.
    pub fn tell(&self) -> String {
        let mut text = format!("seed {}\n", self.seed);
        for line in &self.lines {
            let _ = writeln!(text, "  {line}");
        }
        for wrong in &self.wrong {
            let _ = writeln!(text, "  WRONG: {wrong}");
        }
        text
    }
}

/// Numbers from a seed (SplitMix64): small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice with a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }
}

const SETUP: &str = include_str!("../tests/it/manifests/simulation.yaml");

/// Runs one seed, on a clock of its own.
pub fn simulate(seed: u64) -> Story {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(seed))
}

async fn live(seed: u64) -> Story {
    let mut dice = Dice::new(seed);
    let mut bed = Bed::builder().seed(seed).start().await;
    bed.apply(SETUP).await;
    let foreign = bed.foreign().await;
    let mut story = Story {
        seed,
        lines: Vec::new(),
        wrong: Vec::new(),
        calls: 0,
        crashes: 0,
    };
    let start = tokio::time::Instant::now();
    let mut crash_due = false;
    for _ in 0..12 + dice.below(12) {
        let name = format!("vm-{}", dice.below(4));
        let said = act(&bed, &mut dice, &name).await;
        story
            .lines
            .push(format!("{:>7.1} s  {said}", start.elapsed().as_secs_f64()));
        if dice.below(3) == 0 {
            let fault = fault(&mut dice);
            story.lines.push(format!(
                "{:>7.1} s  fault {fault:?}",
                start.elapsed().as_secs_f64()
            ));
            bed.pve().control().inject(fault);
        }
        if dice.below(3) == 0 {
            let point = CrashPoint {
                call: 1 + dice.below(12),
                carried_out: dice.below(2) == 0,
            };
            story.lines.push(format!(
                "{:>7.1} s  crash at {point:?}",
                start.elapsed().as_secs_f64()
            ));
            story.calls += bed.line().calls();
            bed.line().crash_at(point);
            crash_due = true;
        }
        let pause = Duration::from_millis(100 + dice.below(20_000));
        if crash_due {
            let crashed = tokio::time::timeout(pause, bed.line().crashed())
                .await
                .is_ok();
            if crashed {
                story.crashes += 1;
                crash_due = false;
                bed.crash_operator().await;
                bed.sleep(Duration::from_millis(dice.below(5_000))).await;
                bed.start_operator();
            }
        } else {
            bed.sleep(pause).await;
        }
    }
    bed.pve().control().clear();
    bed.line().crash_at(CrashPoint {
        call: u64::MAX,
        carried_out: false,
    });
    bed.crash_operator().await;
    bed.start_operator();
    story.wrong = rest(&bed).await;
    story.wrong.extend(bed.check(&foreign).await);
    story.calls += bed.line().calls();
    if !story.wrong.is_empty() {
        for name in bed.names::<VirtualMachine>().await {
            story
                .lines
                .push(format!("events of {name}:\n{}", bed.story(&name).await));
        }
    }
    story
}

async fn act(bed: &Bed, dice: &mut Dice, name: &str) -> String {
    let api = bed.api::<VirtualMachine>();
    let Some(machine) = api.get_opt(name).await.unwrap() else {
        let disk = 10 + dice.below(20);
        let document = json!({
            "apiVersion": "infra.virtrigaud.io/v1beta1",
            "kind": "VirtualMachine",
            "metadata": { "name": name },
            "spec": {
                "classRef": { "name": "small" },
                "imageRef": { "name": "ubuntu" },
                "networks": [{ "name": "lan" }],
                "disks": [{ "name": "root", "size": format!("{disk}Gi") }],
                "userData": { "cloudInit": { "inline": format!("#cloud-config\nhostname: {name}\n") } },
            },
        });
        bed.try_apply(&document).await.unwrap();
        return format!("create {name} with {disk} GiB");
    };
    if machine.metadata.deletion_timestamp.is_some() {
        return format!("{name} is going");
    }
    let patch = |spec: serde_json::Value| {
        let api = api.clone();
        async move {
            let params = PatchParams::default();
            api.patch(name, &params, &Patch::Merge(&json!({ "spec": spec })))
                .await
                .unwrap();
        }
    };
    match dice.below(7) {
        0 | 1 => {
            api.delete(name, &DeleteParams::default()).await.unwrap();
            format!("delete {name}")
        }
        2 => {
            let power = ["On", "Off", "OffHard"][usize::try_from(dice.below(3)).unwrap()];
            patch(json!({ "powerState": power })).await;
            format!("power of {name}: {power}")
        }
        3 => {
            let class = ["small", "large"][usize::try_from(dice.below(2)).unwrap()];
            patch(json!({ "classRef": { "name": class }, "updatePolicy": "RestartIfNeeded" }))
                .await;
            format!("class of {name}: {class}")
        }
        4 => {
            let disk = 30 + dice.below(20);
            let size = machine
                .spec
                .disks
                .first()
                .map_or(0, |disk| disk.size.as_gib());
            if disk > size {
                patch(json!({ "disks": [{ "name": "root", "size": format!("{disk}Gi") }] })).await;
            }
            format!("grow {name} from {size} to {disk} GiB")
        }
        5 => {
            let labels =
                json!({ "metadata": { "labels": { "turn": dice.below(1000).to_string() } } });
            api.patch(name, &PatchParams::default(), &Patch::Merge(&labels))
                .await
                .unwrap();
            format!("label {name}")
        }
        _ => {
            let tag = format!("t{}", dice.below(9));
            patch(json!({ "tags": [tag] })).await;
            format!("tag {name}: {tag}")
        }
    }
}

pub(crate) fn fault(dice: &mut Dice) -> Fault {
    let action = match dice.below(7) {
        0 => Action::DropAnswer,
        1 => Action::DropRequest,
        2 => Action::Proxy { status: 595 },
        3 => Action::Proxy { status: 596 },
        4 => Action::Hang,
        5 => Action::die("can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout"),
        _ => Action::delay(Duration::from_millis(dice.below(8_000))),
    };
    let method = ["*", "POST *", "PUT *", "GET *"][usize::try_from(dice.below(4)).unwrap()];
    Fault {
        times: Some(1 + dice.below(6)),
        ..Fault::sometimes(method, 0.5, action)
    }
}

/// Waits until every machine is ready for its present spec or gone; says which never are.
async fn rest(bed: &Bed) -> Vec<String> {
    let mut stuck = Vec::new();
    for _ in 0..720 {
        bed.sleep(Duration::from_secs(10)).await;
        let machines = bed
            .api::<VirtualMachine>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        let snapshots = bed
            .api::<VMSnapshot>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        stuck = machines
            .iter()
            .filter(|machine| !is_at_rest(machine))
            .map(|machine| format!("{} is stuck: {:?}", machine.name_any(), machine.status))
            .chain(
                snapshots
                    .iter()
                    .filter(|s| s.metadata.deletion_timestamp.is_some())
                    .map(|s| format!("snapshot {} does not go", s.name_any())),
            )
            .collect();
        if stuck.is_empty() {
            // What is cleaned up after readiness gets its time, too.
            bed.sleep(Duration::from_mins(3)).await;
            break;
        }
    }
    stuck
}

fn is_at_rest(machine: &VirtualMachine) -> bool {
    let Some(status) = &machine.status else {
        return false;
    };
    let ready = condition(&status.conditions, "Ready").is_some_and(|ready| ready.status == "True");
    machine.metadata.deletion_timestamp.is_none()
        && ready
        && status.observed_generation == machine.metadata.generation
}
