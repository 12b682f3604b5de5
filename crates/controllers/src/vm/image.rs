//! `VMImage`: what machines are made from, there before they need it.
//!
//! An image that is a template on PVE is only looked for: its status says where it was found. An image with a URL is
//! fetched by PVE itself and made a template, once for each cluster and storage that some machine (or `spec.providerRef`) asks
//! for; two images of the same digest share their templates. A template that no machine asks for any more goes after an hour,
//! and all of them go with the image.

mod need;
mod report;
mod wish;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use api::vm::{FleetRecord, ImageSource, Provider, VMImage, VMImageStatus};
use fleet::{ClusterName, ImageProgress, ImageRecord, NodeName, Outcome, StorageId, Vmid};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

pub(crate) use self::{need::wanted_storage, wish::tag};
use self::{
    need::{Need, needs},
    wish::intent,
};
use crate::{
    context::{Context, Error, FINALIZER, FIRST_LOOK, namespace, owner},
    kinds::Watches,
    work::Action,
};

/// How long a template is kept that no machine asks for.
const KEPT_UNUSED: SignedDuration = SignedDuration::from_hours(1);

/// How often an image is looked at again. What is known is in memory, so looking costs no request.
const AGAIN: Duration = Duration::from_secs(30);

/// Endings of files that would have to be unpacked, which PVE does for ISO images only.
const PACKED: [&str; 6] = ["gz", "xz", "zst", "bz2", "lzo", "zip"];

/// What must not be forgotten about an image: where it was asked for, and how far each template is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    targets: Vec<Target>,
}

/// One place an image is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    cluster: ClusterName,
    /// The storage that was asked for; `None` left the choice to us.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<StorageId>,
    /// The storage it is on.
    storage: StorageId,
    #[serde(default)]
    record: ImageRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    unused_since: Option<Timestamp>,
}

impl Target {
    /// Whether this is where somebody needs the image: on the storage that was named, or where we chose when none was.
    fn answers(&self, need: &Need) -> bool {
        let named = need.storage.as_ref() == Some(&self.storage);
        self.cluster == need.cluster && (named || self.asked == need.storage)
    }

    fn is_at(&self, cluster: &ClusterName, storage: &StorageId) -> bool {
        (&self.cluster, &self.storage) == (cluster, storage)
    }
}

impl Record {
    /// A place for a need: one that is there already, or a new one. There is one template in a place, whoever asked for it.
    fn add(&mut self, need: &Need, storage: StorageId) {
        let mut targets = self.targets.iter_mut();
        if let Some(known) = targets.find(|it| it.is_at(&need.cluster, &storage)) {
            known.asked.clone_from(&need.storage);
            known.unused_since = None;
        } else {
            self.targets.push(Target {
                cluster: need.cluster.clone(),
                asked: need.storage.clone(),
                storage,
                record: ImageRecord::default(),
                unused_since: None,
            });
        }
    }

    /// Makes one of what an earlier version kept as two for the same place: to leave one would take the other's template.
    fn unite(&mut self) {
        let mut united: Vec<Target> = Vec::new();
        for target in std::mem::take(&mut self.targets) {
            let mut known = united.iter_mut();
            match known.find(|it| it.is_at(&target.cluster, &target.storage)) {
                None => united.push(target),
                Some(known) => {
                    // Where the choice was ours, it answers both.
                    known.asked = known.asked.take().and(target.asked);
                    known.unused_since = None;
                    for (node, replica) in target.record.replicas {
                        known.record.replicas.entry(node).or_insert(replica);
                    }
                }
            }
        }
        self.targets = united;
    }
}

fn record(status: &VMImageStatus) -> Record {
    let kept = status.record.as_ref();
    kept.and_then(FleetRecord::read).unwrap_or_default()
}

/// The clusters that still have something of an image.
pub(crate) fn clusters(status: &VMImageStatus) -> Vec<ClusterName> {
    let targets = record(status).targets.into_iter();
    targets
        .filter(|target| !target.record.replicas.is_empty())
        .map(|target| target.cluster)
        .collect()
}

/// An image is looked at when a machine that names it, or a Provider, comes, goes or changes.
pub(crate) fn wire(watches: &mut Watches, context: &Arc<Context>) {
    let (looked, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.machines.subscribe(move |machine| {
        if let Some(image) = &machine.spec.image_ref
            && changes.is_new(machine)
        {
            let image = kube::runtime::reflector::ObjectRef::new(&image.name);
            looked.queues.images.push(image.within(&namespace(machine)));
        }
    });
    let (looked, changes) = (context.clone(), crate::hub::SpecChanges::new());
    watches.providers.subscribe(move |provider| {
        if changes.is_new(provider) {
            for image in looked.stores.images.state() {
                looked.queues.images.push_object(&image);
            }
        }
    });
}

pub(crate) async fn reconcile(image: Arc<VMImage>, context: Arc<Context>) -> Result<Action, Error> {
    let uid = image.uid().unwrap_or_default();
    let before: VMImageStatus = context.statuses.newest(&uid, image.status.as_ref());
    if context.statuses.is_behind(&uid) {
        // What could not be written last time goes first: nothing is done on an unstored record.
        write(&context, &image, &before).await?;
    }
    if image.metadata.deletion_timestamp.is_some() {
        return leave(&image, &context, before).await;
    }
    let needs = match needs(&context, &image) {
        Ok(needs) => needs,
        Err(missing) => {
            let status = report::unresolved(&context, &image, &before, &missing);
            let (before, now) = (&before.conditions, &status.conditions);
            context.complain(&*image, before, now).await;
            write(&context, &image, &status).await?;
            return Ok(Action::requeue(Duration::from_mins(1)));
        }
    };
    let said = !before.conditions.is_empty();
    if said && needs.iter().any(|need| context.is_unseen(&need.cluster)) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    let Some(ImageSource::Url(url)) = &image.spec.source else {
        let status = report::found(&context, &image, &before, &needs);
        let (before, now) = (&before.conditions, &status.conditions);
        context.complain(&*image, before, now).await;
        write(&context, &image, &status).await?;
        return Ok(Action::requeue(AGAIN));
    };
    context.hold(&*image).await?;
    let mut work = Work {
        context: &context,
        image: &image,
        url,
        kept: record(&before),
        status: before,
        said: Vec::new(),
    };
    work.keep(&needs).await
}

/// One pass over the places of an image with a URL.
struct Work<'a> {
    context: &'a Context,
    image: &'a VMImage,
    url: &'a str,
    kept: Record,
    status: VMImageStatus,
    /// Where each place has come to in this pass.
    said: Vec<report::Said>,
}

impl Work<'_> {
    async fn keep(&mut self, needs: &[Need]) -> Result<Action, Error> {
        let now = self.context.clock.now();
        self.kept.unite();
        for target in &mut self.kept.targets {
            let used = needs.iter().any(|need| target.answers(need));
            target.unused_since = if used {
                None
            } else {
                Some(target.unused_since.unwrap_or(now))
            };
        }
        for need in needs {
            if self.kept.targets.iter().any(|target| target.answers(need)) {
                continue;
            }
            match need.choose(self.context) {
                Ok(storage) => self.kept.add(need, storage),
                Err(missing) => self.said.push(report::Said::missing(need, &missing)),
            }
        }
        let mut busy: Vec<ClusterName> = Vec::new();
        let mut at = 0;
        while let Some(target) = self.kept.targets.get(at).cloned() {
            if busy.contains(&target.cluster) {
                let needed = needs.iter().any(|need| target.answers(need));
                let begun = !target.record.replicas.is_empty();
                let outcome = if begun && target.record.is_complete() {
                    Outcome::Settled
                } else {
                    Outcome::Persist
                };
                self.said.push(report::Said::new(&target, needed, &outcome));
                at += 1;
                continue;
            }
            let need = needs.iter().find(|need| target.answers(need));
            let asking = needs.iter().filter(|need| target.answers(need));
            let nodes: BTreeSet<NodeName> = asking.flat_map(|it| it.nodes.clone()).collect();
            let nodes = Vec::from_iter(nodes);
            let over = target
                .unused_since
                .is_some_and(|since| now.duration_since(since) >= KEPT_UNUSED);
            let outcome = match need {
                Some(need) => self.advance(at, &need.provider, &nodes, false).await?,
                // What was begun is finished all the same: half of it is of no use to anybody.
                None if over || !target.record.is_complete() => {
                    match self.provider(&target.cluster) {
                        Some(provider) => {
                            let begun: Vec<_> = target.record.replicas.keys().cloned().collect();
                            self.advance(at, &provider, &begun, over).await?
                        }
                        // The Provider is gone, and with it the way there.
                        None => Outcome::Gone,
                    }
                }
                None => {
                    // It may have been finished before any list showed it.
                    let made = target.record.replicas.iter();
                    let made = made.map(|(node, it)| (node.clone(), it.vmid));
                    let made: Vec<_> = made.filter(|(_, it)| self.may_be(&target, *it)).collect();
                    report::templates(&mut self.status, &target, &made);
                    Outcome::Settled
                }
            };
            if outcome == Outcome::Gone {
                self.kept.targets.remove(at);
                continue;
            }
            if matches!(outcome, Outcome::Working { .. }) {
                busy.push(target.cluster.clone());
            }
            self.said
                .push(report::Said::new(&target, need.is_some(), &outcome));
            at += 1;
        }
        self.finish().await?;
        report::announce(self.context, self.image, &self.status).await;
        Ok(Action::requeue(AGAIN))
    }

    /// Stores where everything has come to.
    async fn finish(&mut self) -> Result<(), Error> {
        self.status = report::progress(self.context, self.image, &self.status, &self.said);
        self.store().await
    }

    /// Brings one place nearer to having the template, or to being without it.
    async fn advance(
        &mut self,
        at: usize,
        provider: &Provider,
        nodes: &[NodeName],
        away: bool,
    ) -> Result<Outcome, Error> {
        if !away && is_packed(self.url) {
            return Ok(Outcome::Failed {
                why: fleet::Failure::Invalid,
                message: "spec.source: PVE does not unpack disk images that it downloads: make a VMImage with the URL of a \
                          qcow2, raw or vmdk file"
                    .to_owned(),
            });
        }
        loop {
            let Some(target) = self.kept.targets.get(at) else {
                return Ok(Outcome::Gone);
            };
            let intent = match intent(self.image, self.url, target, provider, nodes) {
                Ok(intent) => intent,
                Err(missing) => {
                    return Ok(Outcome::Failed {
                        why: fleet::Failure::Invalid,
                        message: missing.message,
                    });
                }
            };
            let progress: ImageProgress = if away {
                self.context
                    .fleet
                    .delete_image(&intent, &target.record)
                    .await
            } else {
                self.context.fleet.image(&intent, &target.record).await
            };
            self.context.tell(self.image, &progress.events).await;
            report::templates(&mut self.status, target, &progress.facts.templates);
            let changed = target.record != progress.record;
            self.kept.targets[at].record = progress.record;
            if changed {
                self.store().await?;
            }
            if progress.outcome != Outcome::Persist {
                return Ok(progress.outcome);
            }
        }
    }

    /// Whether nothing speaks against a guest's being a template of this image: it is shown as one, or not at all.
    fn may_be(&self, target: &Target, vmid: Vmid) -> bool {
        let fleet = &self.context.fleet;
        let facts = fleet.facts(&target.cluster);
        let Some(facts) = facts.filter(|facts| facts.reachable) else {
            return true;
        };
        match facts.templates.iter().find(|it| it.vmid == vmid) {
            Some(shown) => {
                let tag = tag(self.image, self.url, &target.storage);
                shown.tags.contains(&tag)
            }
            None => fleet.node_of(&target.cluster, vmid).is_none(),
        }
    }

    fn provider(&self, cluster: &ClusterName) -> Option<Arc<Provider>> {
        let (place, name) = cluster.as_str().split_once('/')?;
        super::refs::find(&self.context.stores.providers, place, name)
    }

    /// Stores the record and the templates; what was said of them before still holds meanwhile.
    async fn store(&mut self) -> Result<(), Error> {
        self.status.record = FleetRecord::of(&self.kept);
        let kept: Vec<_> = self
            .kept
            .targets
            .iter()
            .map(|target| (target.cluster.to_string(), target.storage.to_string()))
            .collect();
        self.status.templates.retain(|replica| {
            kept.iter().any(|(cluster, storage)| {
                replica.provider == *cluster && replica.storage.as_ref() == Some(storage)
            })
        });
        write(self.context, self.image, &self.status).await
    }
}

/// Takes all templates of an image away, and lets it go.
async fn leave(image: &VMImage, context: &Context, status: VMImageStatus) -> Result<Action, Error> {
    if !image.finalizers().iter().any(|f| f == FINALIZER) {
        return Ok(Action::await_change());
    }
    let url = match &image.spec.source {
        Some(ImageSource::Url(url)) => url.clone(),
        _ => String::new(),
    };
    let mut work = Work {
        context,
        image,
        url: &url,
        kept: record(&status),
        status,
        said: Vec::new(),
    };
    let (mut at, mut again) = (0, None);
    let mut waits: Vec<(fleet::Waiting, String)> = Vec::new();
    while let Some(target) = work.kept.targets.get(at).cloned() {
        let outcome = match work.provider(&target.cluster) {
            Some(provider) => work.advance(at, &provider, &[], true).await?,
            None => Outcome::Gone,
        };
        if outcome == Outcome::Gone {
            work.kept.targets.remove(at);
            continue;
        }
        let mut pause = AGAIN;
        if let Outcome::Waiting {
            what,
            message,
            retry,
        } = &outcome
        {
            waits.push((*what, message.clone()));
            pause = *retry;
        }
        again = Some(again.map_or(pause, |before: Duration| before.min(pause)));
        work.said.push(report::Said::new(&target, true, &outcome));
        at += 1;
    }
    if let Some((what, _)) = waits.first() {
        // In one breath: two that take turns would never be the same as before.
        let all: Vec<&str> = waits.iter().map(|(_, text)| text.as_str()).collect();
        context.warn(image, what.as_str(), &all.join("; ")).await;
    }
    if work.kept.targets.is_empty() {
        if let Some(owner) = owner(image) {
            context.fleet.forget(&owner);
        }
        context.release(image).await?;
        return Ok(Action::await_change());
    }
    work.finish().await?;
    Ok(Action::requeue(again.unwrap_or(AGAIN)))
}

/// Whether an address is that of a file which would have to be unpacked.
fn is_packed(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let ending = path
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_lowercase());
    ending.is_some_and(|ending| PACKED.contains(&ending.as_str()))
}

async fn write(context: &Context, image: &VMImage, status: &VMImageStatus) -> Result<(), Error> {
    context
        .statuses
        .write(&context.client, image, image.status.as_ref(), status)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_places_that_are_one_become_one() {
        let place = |asked: Option<&str>, storage: &str| Target {
            cluster: ClusterName::new("lab").unwrap(),
            asked: asked.map(|name| StorageId::new(name).unwrap()),
            storage: StorageId::new(storage).unwrap(),
            record: ImageRecord::default(),
            unused_since: Some(Timestamp::UNIX_EPOCH),
        };
        let mut record = Record {
            targets: vec![
                place(Some("ceph"), "ceph"),
                place(Some("nfs"), "nfs"),
                place(None, "ceph"),
            ],
        };
        record.unite();
        let kept: Vec<_> = record.targets.iter().map(|it| it.asked.as_ref()).collect();
        assert_eq!(kept, [None, Some(&StorageId::new("nfs").unwrap())]);
        assert_eq!(record.targets[0].unused_since, None);
        assert!(record.targets[1].unused_since.is_some());
    }

    #[test]
    fn the_ending_of_an_address_says_whether_it_is_packed() {
        assert!(is_packed("https://x/a.raw.GZ?b=c"));
        assert!(!is_packed("https://x.gz/a?b=c.gz"));
        assert!(!is_packed("https://x/a.qcow2"));
    }
}
