//! Server-side apply: fields have owners, and a change of what another owns is a conflict.
//!
//! An applier sends the fields it has an opinion on. The server merges them into the live object,
//! records them as the applier's, and removes what the applier sent last time, does not send now and
//! nobody else owns. Other writers own what they change ([`track_update`]). The record lives in
//! `metadata.managedFields`.
//!
//! All of it rests on sets of paths (`set`) and walks over typed values (`walk`). The algorithm and
//! its texts are those of Kubernetes, so that `kubectl` cannot tell the difference:
//!
//! - an applier that changes the value of a field owned by someone else is refused with
//!   [`Error::Conflict`], unless it sends the same value (then both own it) or forces;
//! - entries of list maps are told apart by their keys, of list sets by value; atomic lists and maps
//!   have one owner;
//! - times in the record change only when the object or who owns what changed;
//! - objects written before they were ever tracked get a `before-first-apply` owner;
//! - `kubectl`'s client-side applies may be taken over by its server-side ones, and the annotation
//!   that client-side apply keeps is then kept current.

mod element;
mod last_applied;
mod managed;
mod set;
#[cfg(test)]
mod tests;
mod typed;
mod walk;

use serde_json::{Map, Value, json};

use element::{Element, render};
use managed::{Managed, Manager, Owned};
use set::FieldSet;

use crate::shape::Shape;

/// Why a configuration could not be applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Someone else owns fields that the applier would change.
    #[error("{message}")]
    Conflict {
        /// The message for people.
        message: String,
        /// The entries of the status' `details.causes`.
        causes: Vec<Value>,
    },
    /// The request cannot be understood (400).
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the schema (500, as the real server answers).
    #[error("{0}")]
    Typed(String),
}

/// Who writes, when, and through which door.
#[derive(Debug, Clone, Copy)]
pub struct Stamp<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The version of the request, such as `apps/v1`.
    pub api_version: &'a str,
    /// The subresource written through; empty for the object itself.
    pub subresource: &'a str,
    /// Whether the kind has a `status` subresource, so that status has a door of its own.
    pub has_status: bool,
    /// The time of the request in RFC 3339, to the second; empty when it is not to be recorded.
    pub time: &'a str,
}

impl Stamp<'_> {
    /// Drops fields that this door does not write, and those that are identity rather than content.
    fn keep_writable(&self, set: &mut FieldSet) {
        match self.subresource {
            "status" => set.retain_top(|name| name == "status"),
            "" if self.has_status => set.retain_top(|name| name != "status"),
            _ => {}
        }
    }

    fn updater(&self, name: &str) -> Manager {
        Manager::new(name, false, self.api_version, self.subresource)
    }

    fn owned(&self, set: FieldSet) -> Owned {
        Owned {
            version: self.api_version.to_owned(),
            set,
            time: (!self.time.is_empty()).then(|| self.time.into()),
        }
    }
}

/// Applies the configuration `patch` to `live` and returns the new object with its record.
///
/// Without `live` the object is new. Defaults and validation are for afterwards.
pub fn apply(
    live: Option<&Value>,
    patch: &Value,
    shape: Shape<'_>,
    stamp: &Stamp<'_>,
    force: bool,
) -> Result<Value, Error> {
    if patch
        .pointer("/metadata/managedFields")
        .is_some_and(|fields| !fields.is_null())
    {
        return Err(Error::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    typed::check(shape, patch).map_err(|text| {
        Error::Typed(format!(
            "failed to create typed patch object ({}): {text}",
            name_of(patch)
        ))
    })?;
    let Some(live) = live else {
        let empty = empty_like(patch);
        return apply_to(&empty, patch, &Managed::default(), shape, stamp, force);
    };
    let record = live.pointer("/metadata/managedFields");
    let mut managed = Managed::decode(record)
        .map_err(|text| Error::Typed(format!("failed to decode managed fields: {text}")))?;
    let bare = without_record(live);
    if managed.0.is_empty() {
        let everything = changes(shape, &empty_like(live), &bare, stamp);
        let manager = stamp.updater("before-first-apply");
        managed.0.insert(manager, stamp.owned(everything));
        managed.drop_empty();
    }
    let applied = match apply_to(&bare, patch, &managed, shape, stamp, force) {
        Err(conflict @ Error::Conflict { .. }) if stamp.manager == "kubectl" => {
            take_over(&bare, patch, &managed, shape, stamp, conflict)?
        }
        result => result?,
    };
    let mut applied = applied;
    if stamp.manager == "kubectl" && stamp.subresource.is_empty() {
        last_applied::refresh(&bare, patch, &mut applied);
    }
    Ok(keep_times(live, applied))
}

/// Retries an apply of `kubectl` by force if all it conflicts with was applied by it on the client.
fn take_over(
    live: &Value,
    patch: &Value,
    managed: &Managed,
    shape: Shape<'_>,
    stamp: &Stamp<'_>,
    conflict: Error,
) -> Result<Value, Error> {
    let Some(allowed) = last_applied::unchanged_fields(live, shape, stamp.api_version) else {
        return Err(conflict);
    };
    let (conflicts, _) = conflicts_of(live, patch, managed, shape, stamp);
    let rest: Vec<_> = conflicts
        .into_iter()
        .filter(|(_, path)| !allowed.has(path))
        .collect();
    if rest.is_empty() {
        apply_to(live, patch, managed, shape, stamp, true)
    } else {
        Err(conflict_error(&rest))
    }
}

type Conflicts = Vec<(Manager, Vec<Element>)>;

/// What the applier would take from others, and the record and object once it has.
fn conflicts_of(
    live: &Value,
    patch: &Value,
    managed: &Managed,
    shape: Shape<'_>,
    stamp: &Stamp<'_>,
) -> (Conflicts, (Value, Managed)) {
    let mut managed = managed.clone();
    let applier = Manager::new(stamp.manager, true, stamp.api_version, stamp.subresource);
    let mut config = walk::fields_of(shape, patch);
    stamp.keep_writable(&mut config);
    let merged = walk::merge(shape, live, patch);
    let last = managed.0.insert(applier.clone(), stamp.owned(config));
    let last_time = last.as_ref().and_then(|last| last.time.clone());
    let merged = match last {
        Some(last) => prune(shape, &merged, &managed, &last.set),
        None => merged,
    };
    let comparison = compared(shape, live, &merged);
    let mut changed = comparison.modified.union(&comparison.added);
    let mut removed = comparison.removed;
    stamp.keep_writable(&mut changed);
    stamp.keep_writable(&mut removed);
    let mut conflicts = Vec::new();
    for (manager, owned) in &mut managed.0 {
        if *manager == applier {
            continue;
        }
        owned.set.intersection(&changed).each(&mut |path| {
            conflicts.push((manager.clone(), path.to_vec()));
        });
        owned.set = owned.set.difference(&changed).difference(&removed);
    }
    if let Some(owned) = managed.0.get_mut(&applier) {
        owned.set = owned.set.difference(&identity());
        if merged == *live {
            // Who only joins the owners of what is there has changed nothing at any time.
            owned.time = last_time;
        }
    }
    managed.drop_empty();
    (conflicts, (merged, managed))
}

fn apply_to(
    live: &Value,
    patch: &Value,
    managed: &Managed,
    shape: Shape<'_>,
    stamp: &Stamp<'_>,
    force: bool,
) -> Result<Value, Error> {
    let (conflicts, (mut object, managed)) = conflicts_of(live, patch, managed, shape, stamp);
    if !force && !conflicts.is_empty() {
        return Err(conflict_error(&conflicts));
    }
    set_record(&mut object, &managed);
    Ok(object)
}

/// Removes what the applier applied last time, did not apply now, and nobody else owns.
fn prune(shape: Shape<'_>, merged: &Value, managed: &Managed, last: &FieldSet) -> Value {
    let named = |set: &FieldSet| set.with_named_fields(shape);
    let pruned = walk::remove(shape, merged, &named(last));
    let owned = managed
        .0
        .values()
        .fold(FieldSet::default(), |all, o| all.union(&o.set));
    let all = named(&walk::fields_of(shape, merged));
    let kept = named(&walk::fields_of(shape, &pruned)).union(&named(&owned));
    let pruned = walk::remove(shape, merged, &all.difference(&kept));
    let gone = all.difference(&named(&walk::fields_of(shape, &pruned)));
    walk::remove(shape, merged, &gone.intersection(&named(last)))
}

/// A change as it looks in another version, in which some managers own fields.
#[derive(Debug, Clone)]
pub struct Elsewhere<'a> {
    /// The version, such as `apps/v1`.
    pub version: &'a str,
    /// The object before the change, in that version.
    pub old: Value,
    /// The object after the change, in that version.
    pub new: Value,
    /// The shape of that version.
    pub shape: Shape<'a>,
}

/// Records in `new` who owns what after a create (`old` is none) or an update of any kind.
///
/// Call it on the object that is going to be stored.
pub fn track_update(old: Option<&Value>, new: &mut Value, shape: Shape<'_>, stamp: &Stamp<'_>) {
    track_versions(old, new, shape, stamp, &[]);
}

/// The same for a kind whose versions name fields differently.
///
/// Owners lose what changed in the version in which they own it; `elsewhere` says what that is.
pub fn track_versions(
    old: Option<&Value>,
    new: &mut Value,
    shape: Shape<'_>,
    stamp: &Stamp<'_>,
    elsewhere: &[Elsewhere<'_>],
) {
    let sent = new.pointer("/metadata/managedFields").cloned();
    let live = old.and_then(|old| old.pointer("/metadata/managedFields"));
    let from_live = || Managed::decode(live).unwrap_or_default();
    let mut managed = if !stamp.subresource.is_empty() {
        from_live()
    } else if sent.as_ref().is_some_and(is_reset) {
        Managed::default()
    } else {
        // Clients that do not know the record must not lose it for others.
        let sent = Managed::decode(sent.as_ref()).unwrap_or_default();
        if sent.0.is_empty() { from_live() } else { sent }
    };
    let bare = without_record(new);
    if managed.0.is_empty() && old.is_some() {
        set_record(new, &managed);
        return;
    }
    let before = old.map_or_else(|| empty_like(&bare), without_record);
    let comparison = compared(shape, &before, &bare);
    let mut changed = comparison.modified.union(&comparison.added);
    let mut removed = comparison.removed;
    stamp.keep_writable(&mut changed);
    stamp.keep_writable(&mut removed);
    let others: Vec<(&str, FieldSet)> = elsewhere
        .iter()
        .map(|other| {
            let (before, after) = (without_record(&other.old), without_record(&other.new));
            let comparison = compared(other.shape, &before, &after);
            let mut touched = comparison.modified.union(&comparison.added);
            touched = touched.union(&comparison.removed);
            stamp.keep_writable(&mut touched);
            (other.version, touched)
        })
        .collect();
    for owned in managed.0.values_mut() {
        owned.set = match others.iter().find(|(version, _)| *version == owned.version) {
            Some((_, touched)) => owned.set.difference(touched),
            None => owned.set.difference(&changed).difference(&removed),
        };
    }
    managed.drop_empty();
    let mine = changed.difference(&identity());
    if !mine.is_empty() {
        let manager = stamp.updater(stamp.manager);
        let before = managed
            .0
            .get(&manager)
            .map(|owned| owned.set.clone())
            .unwrap_or_default();
        managed.0.insert(manager, stamp.owned(mine.union(&before)));
    }
    managed.cap();
    set_record(new, &managed);
    if let Some(old) = old {
        *new = keep_times(old, std::mem::take(new));
    }
}

/// An empty list, or one empty entry, asks to forget all owners.
fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([one]) => one.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

fn compared(shape: Shape<'_>, old: &Value, new: &Value) -> walk::Comparison {
    let (mut old, mut new) = (old.clone(), new.clone());
    walk::complete(shape, &mut old);
    walk::complete(shape, &mut new);
    walk::compare(shape, &old, &new)
}

fn changes(shape: Shape<'_>, old: &Value, new: &Value, stamp: &Stamp<'_>) -> FieldSet {
    let comparison = compared(shape, old, new);
    let mut set = comparison.modified.union(&comparison.added);
    stamp.keep_writable(&mut set);
    set.difference(&identity())
}

/// Fields that are the object's identity or the server's own: nobody owns them.
fn identity() -> FieldSet {
    let mut set = FieldSet::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[Element::field(name)]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert(&[Element::field("metadata"), Element::field(name)]);
    }
    set
}

fn empty_like(object: &Value) -> Value {
    let mut out = Map::new();
    for name in ["apiVersion", "kind"] {
        out.extend(
            object
                .get(name)
                .map(|value| (name.to_owned(), value.clone())),
        );
    }
    Value::Object(out)
}

fn without_record(object: &Value) -> Value {
    let mut out = object.clone();
    if let Some(Value::Object(metadata)) = out.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    out
}

fn set_record(object: &mut Value, managed: &Managed) {
    if let Value::Object(map) = object {
        let metadata = map.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.remove("managedFields");
            metadata.extend(
                managed
                    .encode()
                    .map(|record| ("managedFields".to_owned(), record)),
            );
        }
    }
}

/// Keeps the old times if nothing else changed, so that a repeated write is no write.
fn keep_times(old: &Value, mut new: Value) -> Value {
    let record = |object: &Value| Managed::decode(object.pointer("/metadata/managedFields"));
    if let (Ok(before), Ok(after)) = (record(old), record(&new))
        && before.same_but_times(&after)
        && without_record(old) == without_record(&new)
    {
        set_record(&mut new, &before);
    }
    new
}

fn name_of(object: &Value) -> String {
    let text = |path: &str| {
        object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let version = text("/apiVersion");
    let group = if version.contains('/') { "" } else { "/" };
    format!(
        "{namespace}/{name}; {group}{version}, Kind={}",
        text("/kind")
    )
}

fn conflict_error(conflicts: &Conflicts) -> Error {
    let causes = conflicts.iter().map(|(manager, path)| {
        json!({
            "reason": "FieldManagerConflict",
            "message": format!("conflict with {}", manager.shown()),
            "field": render(path),
        })
    });
    let message = match conflicts.as_slice() {
        [(manager, path)] => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            manager.shown(),
            render(path)
        ),
        many => {
            let mut lines = Vec::new();
            let mut last = None;
            for (manager, path) in many {
                if last != Some(manager) {
                    lines.push(format!("conflicts with {}:", manager.shown()));
                    last = Some(manager);
                }
                lines.push(format!("- {}", render(path)));
            }
            format!(
                "Apply failed with {} conflicts: {}",
                many.len(),
                lines.join("\n")
            )
        }
    };
    Error::Conflict {
        message,
        causes: causes.collect(),
    }
}
