//! What the fleet knows and has done, for Prometheus.
//!
//! Nothing is counted twice: a scrape reads what the clusters remember anyway. Names of guests and owners are not
//! among the labels, so the number of series does not grow with the fleet.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

use crate::{ClusterName, PowerFact, cluster::State, fleet::Observer};

/// What a [`crate::Fleet`] knows and has done; hand it to a registry's `register_collector`.
#[derive(Debug)]
pub struct Metrics(pub(crate) Observer);

#[derive(Clone, Debug, EncodeLabelSet)]
struct OfCluster {
    cluster: String,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct ByState {
    cluster: String,
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct ByStep {
    cluster: String,
    step: String,
    result: &'static str,
}

/// One cluster at the moment of a scrape.
struct Reading {
    name: ClusterName,
    reachable: bool,
    nodes: [(&'static str, u64); 2],
    guests: [(&'static str, u64); 4],
    kept: u64,
    flying: u64,
    in_line: u64,
    tasks: Vec<(String, &'static str, u64, f64)>,
}

impl Reading {
    fn of(name: ClusterName, state: &State) -> Self {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let nodes = state.facts.nodes.values();
        let online = count(nodes.clone().filter(|node| node.online).count());
        let rows = || state.view.iter().flat_map(|view| view.guests.values());
        let guests = |is: fn(PowerFact) -> bool| {
            count(rows().filter(|row| !row.template && is(row.power)).count())
        };
        Self {
            name,
            reachable: state.facts.reachable,
            nodes: [("online", online), ("offline", count(nodes.len()) - online)],
            guests: [
                ("running", guests(|power| power == PowerFact::Running)),
                ("stopped", guests(|power| power == PowerFact::Stopped)),
                (
                    "other",
                    guests(|power| !matches!(power, PowerFact::Running | PowerFact::Stopped)),
                ),
                ("template", count(rows().filter(|row| row.template).count())),
            ],
            kept: count(state.owners.len()),
            flying: count(state.tasks.flying()),
            in_line: count(state.gate.waiting()),
            tasks: state.tasks.done(),
        }
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let readings: Vec<Reading> = self.0.read(Reading::of);
        let of = |reading: &Reading| OfCluster {
            cluster: reading.name.to_string(),
        };
        let mut gauge = |name: &str, help: &str, value: fn(&Reading) -> u64| -> fmt::Result {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for reading in &readings {
                all.encode_family(&of(reading))?
                    .encode_gauge(&value(reading))?;
            }
            Ok(())
        };
        gauge(
            "oxmox_pve_reachable",
            "Whether the PVE cluster answers",
            |reading| u64::from(reading.reachable),
        )?;
        gauge(
            "oxmox_pve_kept_guests",
            "Guests and templates this process keeps on the PVE cluster",
            |reading| reading.kept,
        )?;
        gauge(
            "oxmox_pve_tasks_running",
            "PVE tasks of ours that have not ended",
            |reading| reading.flying,
        )?;
        gauge(
            "oxmox_pve_waiting_in_line",
            "Owners that wait until a node, storage or template has room for more work",
            |reading| reading.in_line,
        )?;
        let mut states = |name: &str,
                          help: &str,
                          values: fn(&Reading) -> &[(&'static str, u64)]|
         -> fmt::Result {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for reading in &readings {
                for (state, value) in values(reading) {
                    let labels = ByState {
                        cluster: reading.name.to_string(),
                        state,
                    };
                    all.encode_family(&labels)?.encode_gauge(value)?;
                }
            }
            Ok(())
        };
        states("oxmox_pve_nodes", "Nodes of the PVE cluster", |r| &r.nodes)?;
        states(
            "oxmox_pve_guests",
            "Guests of the PVE cluster, whoever keeps them",
            |r| &r.guests,
        )?;
        tasks(&mut encoder, &readings)
    }
}

fn tasks(encoder: &mut DescriptorEncoder<'_>, readings: &[Reading]) -> fmt::Result {
    let labels = |reading: &Reading, step: &str, result: &'static str| ByStep {
        cluster: reading.name.to_string(),
        step: step.to_owned(),
        result,
    };
    let help = "PVE tasks of ours that ended, by step and result";
    let mut all = encoder.encode_descriptor("oxmox_pve_tasks", help, None, MetricType::Counter)?;
    for reading in readings {
        for (step, result, times, _) in &reading.tasks {
            let labels = labels(reading, step, result);
            all.encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(times, None)?;
        }
    }
    let help = "Seconds until PVE tasks of ours were seen to have ended";
    let name = "oxmox_pve_task_seconds";
    let mut all = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for reading in readings {
        for (step, result, _, seconds) in &reading.tasks {
            let labels = labels(reading, step, result);
            all.encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(seconds, None)?;
        }
    }
    Ok(())
}
