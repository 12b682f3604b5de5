//! Which backups stay: `keep-last=3,keep-daily=7` and the marks that follow from it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Content, Volume};
use crate::call::{Call, Reply};
use crate::clock::calendar;
use crate::failure::Failure;
use crate::guest::permit;
use crate::params::Params;
use crate::world::World;

/// What becomes of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Keep,
    Remove,
    Protected,
}

impl Mark {
    fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Remove => "remove",
            Self::Protected => "protected",
        }
    }
}

/// Which period a backup belongs to, by its place in the list and its time.
type Period<'a> = &'a dyn Fn(usize, u64) -> u64;

/// How many backups of a guest stay, by kind of period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    last: usize,
    hourly: usize,
    daily: usize,
    weekly: usize,
    monthly: usize,
    yearly: usize,
}

impl Retention {
    /// Reads `prune-backups`; nothing if all backups stay.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut found = Self::default();
        for (key, value) in text.split(',').filter_map(|part| part.split_once('=')) {
            let count = value.parse().unwrap_or(0);
            match key {
                "keep-last" => found.last = count,
                "keep-hourly" => found.hourly = count,
                "keep-daily" => found.daily = count,
                "keep-weekly" => found.weekly = count,
                "keep-monthly" => found.monthly = count,
                "keep-yearly" => found.yearly = count,
                _ => {}
            }
        }
        (found != Self::default()).then_some(found)
    }

    /// How many backups of a guest there may be where none is removed.
    pub(crate) fn limit(&self) -> usize {
        self.last + self.hourly + self.daily + self.weekly + self.monthly + self.yearly
    }

    /// The marks of one guest's backups, given their times from the newest to the oldest.
    fn marks(&self, backups: &[(u64, bool)]) -> Vec<Mark> {
        let mut marks: Vec<Option<Mark>> = backups
            .iter()
            .map(|(_, protected)| protected.then_some(Mark::Protected))
            .collect();
        let day = |time: u64| time / 86_400;
        let month = |time: u64| {
            let at = calendar(time);
            at.year * 12 + at.month
        };
        // The last backup of each of so many periods stays; one that stays anyway counts for its period.
        let periods: [(usize, Period<'_>); 6] = [
            (self.last, &|index, _| index as u64),
            (self.hourly, &|_, time| time / 3600),
            (self.daily, &|_, time| day(time)),
            (self.weekly, &|_, time| (day(time) + 3) / 7),
            (self.monthly, &|_, time| month(time)),
            (self.yearly, &|_, time| calendar(time).year),
        ];
        for (count, period) in periods {
            let mut covered: BTreeSet<u64> = (0..backups.len())
                .filter(|index| marks[*index] == Some(Mark::Keep))
                .map(|index| period(index, backups[index].0))
                .collect();
            let mut left = count;
            for (index, (time, _)) in backups.iter().enumerate() {
                if left == 0 {
                    break;
                }
                if marks[index].is_none() && covered.insert(period(index, *time)) {
                    marks[index] = Some(Mark::Keep);
                    left -= 1;
                }
            }
        }
        marks
            .into_iter()
            .map(|mark| mark.unwrap_or(Mark::Remove))
            .collect()
    }
}

/// A backup and what becomes of it.
pub(crate) struct Marked {
    pub(crate) volid: String,
    pub(crate) mark: Mark,
    kind: String,
    vmid: Option<u32>,
    time: u64,
}

/// Marks all backups on a storage that `wanted` chooses.
pub(crate) fn mark(
    world: &World,
    node: &str,
    storage: &str,
    retention: Option<&Retention>,
    wanted: &dyn Fn(&str, Option<u32>) -> bool,
) -> Result<Vec<Marked>, Failure> {
    let storage = world.storages.enabled(storage, node)?;
    let mut groups: BTreeMap<(String, Option<u32>), Vec<&Volume>> = BTreeMap::new();
    let volumes = storage.store(node).into_iter().flat_map(super::Store::iter);
    for (_, volume) in volumes.filter(|(_, volume)| volume.name.content == Content::Backup) {
        let kind = volume.archive.as_ref().map_or("unknown", |it| &it.kind);
        if wanted(kind, volume.name.vmid) {
            let group = (kind.to_owned(), volume.name.vmid);
            groups.entry(group).or_default().push(volume);
        }
    }
    let mut all = Vec::new();
    for ((kind, vmid), mut backups) in groups {
        backups.sort_by_key(|volume| std::cmp::Reverse((volume.ctime, volume.name.file.clone())));
        let times: Vec<(u64, bool)> = backups.iter().map(|it| (it.ctime, it.protected)).collect();
        let marks = match retention {
            Some(retention) => retention.marks(&times),
            None => times
                .iter()
                .map(|(_, protected)| {
                    if *protected {
                        Mark::Protected
                    } else {
                        Mark::Keep
                    }
                })
                .collect(),
        };
        for (volume, mark) in backups.into_iter().zip(marks) {
            let name = volume.name.volname(storage.def.kind);
            all.push(Marked {
                volid: format!("{}:{name}", storage.def.id),
                mark,
                kind: kind.clone(),
                vmid,
                time: volume.ctime,
            });
        }
    }
    Ok(all)
}

/// The retention a call asks for: its own, else the storage's.
pub(crate) fn retention(world: &World, storage: &str, params: &Params) -> Option<Retention> {
    let of_storage = || {
        let storage = world.storages.get(storage).ok()?;
        storage.def.options.get("prune-backups").cloned()
    };
    let text = params.get("prune-backups").map(str::to_owned);
    Retention::parse(&text.or_else(of_storage)?)
}

fn marked(call: &Call<'_>) -> Result<Vec<Marked>, Failure> {
    let params = &call.params;
    let (storage, kind, vmid) = (
        params.text("storage"),
        params.get("type"),
        params.vmid("vmid"),
    );
    let retention = retention(call.world, storage, params);
    mark(
        call.world,
        params.text("node"),
        storage,
        retention.as_ref(),
        &|of, owner| kind.is_none_or(|it| it == of) && vmid.is_none_or(|it| Some(it) == owner),
    )
}

/// `GET …/prunebackups`: what a prune would do.
pub(crate) fn dry_run(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let rows = marked(call)?.into_iter().map(|it| {
        let mut row = json!({
            "volid": it.volid, "ctime": it.time, "mark": it.mark.name(), "type": it.kind,
        });
        if let Some(vmid) = it.vmid {
            row["vmid"] = json!(vmid);
        }
        row
    });
    Ok(rows.collect::<Value>().into())
}

/// `DELETE …/prunebackups`
pub(crate) fn prune(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let storage = call.params.text("storage").to_owned();
    let path = format!("/storage/{storage}");
    let vmid = call.params.vmid("vmid");
    call.need(&path, &["Datastore.AllocateSpace"])?;
    if let Some(vmid) = vmid {
        call.need(&path, &["Datastore.Allocate"])
            .or_else(|_| call.need(&format!("/vms/{vmid}"), &["VM.Backup"]))?;
    } else {
        call.need(&path, &["Datastore.Allocate"])?;
    }
    let doomed: Vec<String> = marked(call)?
        .into_iter()
        .filter(|it| it.mark == Mark::Remove)
        .map(|it| it.volid)
        .collect();
    for volid in &doomed {
        permit::volume(call, vmid.unwrap_or(0), volid)?;
    }
    let id = vmid.map_or(storage.clone(), |vmid| format!("{vmid}@{storage}"));
    Ok(call.task("prunebackups", id, move |worker| async move {
        for volid in doomed {
            worker.world(|world| world.storages.free(worker.node(), &volid))?;
            worker.log(format!("removed backup '{volid}'"));
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    /// Sunday, 15 November 2026, 19:39:12.
    const NOW: u64 = 1_794_771_552;

    fn kept(text: &str, backups: &[(u64, bool)]) -> Vec<usize> {
        let marks = Retention::parse(text).unwrap().marks(backups);
        let kept = marks
            .iter()
            .enumerate()
            .filter(|(_, mark)| **mark == Mark::Keep);
        kept.map(|(index, _)| index).collect()
    }

    #[test]
    fn the_newest_of_every_period_stays() {
        let backups: Vec<(u64, bool)> = [0, 1, 25, 26, 49, 24 * 9, 24 * 40]
            .map(|hours| (NOW - hours * 3600, false))
            .into();
        assert_eq!(kept("keep-last=2", &backups), [0, 1]);
        assert_eq!(kept("keep-daily=3", &backups), [0, 2, 4]);
        assert_eq!(kept("keep-last=1,keep-daily=2", &backups), [0, 2, 4]);
        assert_eq!(kept("keep-monthly=2", &backups), [0, 6]);
    }

    #[test]
    fn a_protected_backup_neither_goes_nor_counts() {
        let backups = [(NOW, true), (NOW - DAY, false), (NOW - 2 * DAY, false)];
        let marks = Retention::parse("keep-last=1").unwrap().marks(&backups);
        assert_eq!(marks, [Mark::Protected, Mark::Keep, Mark::Remove]);
    }

    #[test]
    fn without_counts_everything_stays() {
        assert_eq!(Retention::parse("keep-all=1"), None);
        assert_eq!(Retention::parse("keep-last=0"), None);
    }
}
