//! One operation at a time, from the write to the Kubernetes API until its object says that it is done.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use api::vm::{VMSnapshot, VirtualMachine, condition};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::sheet::{Column, Samples, Sheet, millis, number};
use super::super::stopwatch::Stopwatch;
use super::super::system::{Setting, System};
use super::{machine, system};

const COLUMNS: &[Column] = &[
    Column("operation", "Operation", 0),
    Column("p50_ms", "P50 (ms)", 0),
    Column("p95_ms", "P95 (ms)", 0),
    Column("per_minute", "Per minute", 0),
    Column("requests", "PVE requests", 1),
    Column("overhead_p50_ms", "Overhead P50 (ms)", 0),
    Column("overhead_p95_ms", "Overhead P95 (ms)", 0),
];

/// What a machine is left alone after an operation, so that one does not pay for another.
const REST: Duration = Duration::from_secs(75);

/// After so long everything is cleaned up that belongs to machines made before.
const CLEANED_UP: Duration = Duration::from_mins(7);

/// How long it is looked what is asked for when nothing is done.
const IDLE: Duration = Duration::from_mins(20);

/// Something the watch did not show in an hour does not happen.
const PATIENCE: Duration = Duration::from_hours(1);

pub(super) async fn measure(setting: &Setting, samples: u32) -> Result<Sheet> {
    let mut bench = Operations {
        system: system(setting).await?,
        samples,
        idle: 0.0,
    };
    let mut sheet = Sheet::new(
        "operations",
        format!("Operations, one at a time ({samples} of each)"),
        COLUMNS,
    );
    tokio::time::sleep(REST).await;
    let mut made = bench.create().await?;
    tokio::time::sleep(CLEANED_UP).await;
    made.end(&bench.system);
    bench.idle = bench.at_rest().await;
    made.write(&mut sheet, "Create with cloud-init, running", bench.idle);
    bench.clone_linked(&mut sheet).await?;
    let power = |state: &str| json!({ "powerState": state });
    let is = |state: &'static str| {
        move |vm: &VirtualMachine| {
            vm.status
                .as_ref()
                .is_some_and(|status| status.power_state.as_deref() == Some(state))
        }
    };
    bench
        .change(&mut sheet, "Power off (graceful)", power("Off"), is("Off"))
        .await?;
    bench
        .change(&mut sheet, "Power on", power("On"), is("On"))
        .await?;
    let nothing_pending = |vm: &VirtualMachine| {
        let status = vm.status.as_ref();
        status.is_some_and(|status| status.pending_changes.is_empty())
    };
    bench
        .change(
            &mut sheet,
            "Reconfigure CPU (live)",
            json!({"cpus": 2}),
            nothing_pending,
        )
        .await?;
    bench.snapshot(&mut sheet).await?;
    bench.describe(&mut sheet).await?;
    Ok(sheet)
}

struct Operations {
    system: System,
    samples: u32,
    /// Requests per second that are made whatever is done.
    idle: f64,
}

/// What operations of one kind took.
struct Taken {
    whole: Samples,
    overhead: Samples,
    count: u32,
    begun: Instant,
    before: u64,
    /// How long all of it took, and all requests meanwhile.
    ended: (Duration, u64),
}

impl Operations {
    fn machines(&self) -> Api<VirtualMachine> {
        Api::default_namespaced(self.system.client.clone())
    }

    /// Requests per second when nothing is done.
    async fn at_rest(&self) -> f64 {
        let before = self.system.requests();
        tokio::time::sleep(IDLE).await;
        super::count(self.system.requests() - before) / IDLE.as_secs_f64()
    }

    async fn create(&self) -> Result<Taken> {
        let mut taken = Taken::begin(&self.system);
        for number in 0..self.samples {
            let name = format!("create-{number}");
            let act = self.system.apply(machine(&name, true));
            Box::pin(self.time(&mut taken, act, self.ready(&name, |_| true))).await?;
        }
        Ok(taken)
    }

    async fn clone_linked(&self, sheet: &mut Sheet) -> Result<()> {
        let mut taken = Taken::begin(&self.system);
        for number in 0..self.samples {
            let name = format!("clone-{number}");
            let mut object = machine(&name, false);
            object["spec"]["powerState"] = json!("Off");
            object["spec"]["linkedClone"] = json!(true);
            object["spec"]["disks"] = json!([]);
            let act = self.system.apply(object);
            Box::pin(self.time(&mut taken, act, self.ready(&name, |_| true))).await?;
        }
        taken.end(&self.system);
        taken.write(sheet, "Clone (linked), off", self.idle);
        for number in 0..self.samples {
            self.delete(&format!("clone-{number}")).await?;
        }
        Ok(())
    }

    /// Changes each of the machines made before.
    async fn change(
        &self,
        sheet: &mut Sheet,
        what: &str,
        spec: Value,
        done: impl Fn(&VirtualMachine) -> bool + Copy,
    ) -> Result<()> {
        let mut taken = Taken::begin(&self.system);
        for number in 0..self.samples {
            let name = format!("create-{number}");
            let patch = json!({ "spec": spec });
            let act = async {
                self.machines()
                    .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                    .await
                    .with_context(|| format!("the API server refused the change of {name}"))
                    .map(drop)
            };
            Box::pin(self.time(&mut taken, act, self.ready(&name, done))).await?;
        }
        taken.end(&self.system);
        taken.write(sheet, what, self.idle);
        Ok(())
    }

    async fn snapshot(&self, sheet: &mut Sheet) -> Result<()> {
        let api: Api<VMSnapshot> = Api::default_namespaced(self.system.client.clone());
        let mut taken = Taken::begin(&self.system);
        for number in 0..self.samples {
            let name = format!("create-{number}");
            let act = self.system.apply(json!({
                "apiVersion": "infra.virtrigaud.io/v1beta1", "kind": "VMSnapshot", "metadata": {"name": name},
                "spec": {"vmRef": {"name": name}, "includeMemory": true},
            }));
            let ready = |found: Option<&VMSnapshot>| {
                let status = found.and_then(|snapshot| snapshot.status.as_ref());
                let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
                ready.is_some_and(|ready| ready.status == "True")
            };
            let done = async {
                let seen = await_condition(api.clone(), &name, ready);
                match tokio::time::timeout(PATIENCE, seen).await {
                    Ok(seen) => seen.map(drop).context("cannot watch the snapshot"),
                    Err(_) => bail!("snapshot {name} is not there after an hour"),
                }
            };
            Box::pin(self.time(&mut taken, act, done)).await?;
        }
        taken.end(&self.system);
        taken.write(sheet, "Snapshot with memory", self.idle);
        Ok(())
    }

    /// Reading a machine costs Proxmox VE nothing, so only our own work counts, in real time.
    async fn describe(&self, sheet: &mut Sheet) -> Result<()> {
        let (mut taken, before) = (Samples::default(), self.system.requests());
        for number in 0..self.samples {
            let name = format!("create-{number}");
            let watch = Stopwatch::start();
            self.machines()
                .get(&name)
                .await
                .context("the API server did not answer")?;
            taken.add(watch.elapsed());
        }
        let requests = self.system.requests() - before;
        sheet.row([
            "Describe (real time)".into(),
            millis(taken.percentile(50)),
            millis(taken.percentile(95)),
            taken.per_minute(),
            number(super::count(requests)),
            millis(taken.percentile(50)),
            millis(taken.percentile(95)),
        ]);
        Ok(())
    }

    /// Resolves when a machine is Ready for its present spec, and as wanted.
    async fn ready(&self, name: &str, done: impl Fn(&VirtualMachine) -> bool) -> Result<()> {
        let is = |found: Option<&VirtualMachine>| {
            found.is_some_and(|vm| super::burst::is_ready(vm) && done(vm))
        };
        let seen = await_condition(self.machines(), name, is);
        if let Ok(seen) = tokio::time::timeout(PATIENCE, seen).await {
            return seen.map(drop).context("cannot watch the machine");
        }
        let found = self.machines().get(name).await?;
        bail!(
            "machine {name} is not there after an hour: {:?}",
            found.status
        )
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let api = self.machines();
        api.delete(name, &DeleteParams::default()).await?;
        let gone = await_condition(api, name, |found: Option<&VirtualMachine>| found.is_none());
        match tokio::time::timeout(PATIENCE, gone).await {
            Ok(gone) => gone.map(drop).context("cannot watch the machine"),
            Err(_) => bail!("machine {name} is not gone after an hour"),
        }
    }

    async fn time(
        &self,
        taken: &mut Taken,
        act: impl Future<Output = Result<()>>,
        done: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        // On the heap: what is timed is far larger than the timing.
        let (act, done) = (Box::pin(act), Box::pin(done));
        self.system.meter.reset();
        let begun = Instant::now();
        act.await?;
        done.await?;
        let whole = begun.elapsed();
        taken.whole.add(whole);
        taken
            .overhead
            .add(whole.saturating_sub(self.system.meter.busy_since(begun)));
        // What comes after it belongs to the operation too.
        tokio::time::sleep(REST).await;
        taken.count += 1;
        Ok(())
    }
}

impl Taken {
    fn begin(system: &System) -> Self {
        Self {
            whole: Samples::default(),
            overhead: Samples::default(),
            count: 0,
            begun: Instant::now(),
            before: system.requests(),
            ended: Default::default(),
        }
    }

    fn end(&mut self, system: &System) {
        self.ended = (self.begun.elapsed(), system.requests() - self.before);
    }

    /// Writes a row. What would have been asked for anyway is not counted.
    fn write(&self, sheet: &mut Sheet, what: &str, idle: f64) {
        let (span, requests) = self.ended;
        let own = (super::count(requests) - idle * span.as_secs_f64()).max(0.0);
        sheet.row([
            what.into(),
            millis(self.whole.percentile(50)),
            millis(self.whole.percentile(95)),
            self.whole.per_minute(),
            number(own / f64::from(self.count.max(1))),
            millis(self.overhead.percentile(50)),
            millis(self.overhead.percentile(95)),
        ]);
    }
}
