//! Objects between the versions of their kind.
//!
//! A kind's objects are stored in one version and served in all of them. Between custom versions either
//! only the label changes or a webhook is asked ([`review`]), with as many objects at once as the
//! request concerns. What a webhook may change is the content; an object's identity stays.

mod review;

use std::time::Duration;

use serde_json::{Value, json};

use super::{Api, typed};
use crate::{
    kinds::BuiltIn,
    object,
    registry::{
        Resource,
        crd::{Conversion, Webhook},
        text,
    },
    status::{Result, Status},
};

/// How long a conversion may take.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Api {
    /// Gives an object the shape of another version of its kind.
    pub(crate) async fn convert(
        &self,
        resource: &Resource,
        object: Value,
        to: &str,
    ) -> Result<Value> {
        if text(&object, "apiVersion") == to {
            return Ok(object);
        }
        let converted = self.convert_all(resource, vec![object], to).await?;
        let lost = || Status::internal("a conversion has lost its object");
        converted.into_iter().next().ok_or_else(lost)
    }

    /// Gives objects, which may be of several versions, the shape of one version of their kind.
    pub(crate) async fn convert_all(
        &self,
        resource: &Resource,
        mut objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>> {
        let Some(crd) = &resource.crd else {
            return objects
                .into_iter()
                .map(|object| builtin(object, to))
                .collect();
        };
        match &crd.conversion {
            Conversion::None => {
                for object in &mut objects {
                    object["apiVersion"] = json!(to);
                }
                Ok(objects)
            }
            Conversion::Webhook(webhook) => self.convert_by_webhook(webhook, objects, to).await,
        }
    }

    async fn convert_by_webhook(
        &self,
        webhook: &Webhook,
        mut objects: Vec<Value>,
        to: &str,
    ) -> Result<Vec<Value>> {
        let differs = |object: &Value| text(object, "apiVersion") != to;
        let asked: Vec<&Value> = objects.iter().filter(|object| differs(object)).collect();
        let Some(first) = asked.first() else {
            return Ok(objects);
        };
        let (from, kind) = (text(first, "apiVersion"), text(first, "kind"));
        let told = |why: String| Status::foreign(500, "", why);
        let failed = |why: &str| {
            told(format!(
                "conversion webhook for {from}, Kind={kind} failed: {why}"
            ))
        };
        let uid = self.new_uid();
        let question = review::question(&uid, &asked, to, webhook.speaks);
        let answer = match &webhook.place {
            Ok(place) => self.call_webhook(place, &question, TIMEOUT).await,
            Err(error) => Err(error.clone()),
        };
        let answer = answer.map_err(|error| failed(&error.0))?;
        let converted = review::read(&answer, &uid, webhook.speaks).map_err(|why| failed(&why))?;
        if converted.len() != asked.len() {
            return Err(told(format!(
                "conversion webhook for {from}, Kind={kind} returned {} objects, expected {}",
                converted.len(),
                asked.len()
            )));
        }
        let mut settled = Vec::with_capacity(converted.len());
        for (index, (asked, converted)) in asked.iter().zip(converted).enumerate() {
            let object = review::settle(asked, converted, to).map_err(|why| {
                told(format!(
                    "conversion webhook for {from}, Kind={kind} returned invalid converted object at index {index}: {why}"
                ))
            })?;
            settled.push(object);
        }
        let mut settled = settled.into_iter();
        for object in objects.iter_mut().filter(|object| differs(object)) {
            if let Some(converted) = settled.next() {
                *object = converted;
            }
        }
        Ok(objects)
    }

    /// Gives an object the shape in which it is stored.
    pub(crate) async fn to_storage(&self, resource: &Resource, object: Value) -> Result<Value> {
        let version = &resource.storage_version;
        if text(&object, "apiVersion") == version {
            return Ok(object);
        }
        let mut object = self.convert(resource, object, version).await?;
        typed::prune_as(resource, version, &mut object);
        Ok(object)
    }
}

/// Events are the one built-in kind served in two shapes of the same objects.
fn builtin(mut object: Value, to: &str) -> Result<Value> {
    if text(&object, "apiVersion") == to {
        return Ok(object);
    }
    if text(&object, "kind") != "Event" {
        return Err(Status::internal(format!(
            "no conversion of {} to {to}",
            text(&object, "apiVersion")
        )));
    }
    let renames = [
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("reportingComponent", "reportingController"),
    ];
    let (to_group, _) = object::group_version(to);
    if let Some(map) = object.as_object_mut() {
        for (core, new) in renames {
            let (from, to) = if to_group.is_empty() {
                (new, core)
            } else {
                (core, new)
            };
            if let Some(value) = map.remove(from) {
                map.insert(to.to_owned(), value);
            }
        }
        map.insert("apiVersion".into(), json!(to));
    }
    // What is written when it is empty differs between the two.
    let (group, version) = object::group_version(to);
    if let Some(kind) = BuiltIn::find(group, version, "Event")
        && kind.decode(&mut object).is_ok()
    {
        kind.encode(&mut object);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_keep_everything_between_their_two_groups() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "message": "m", "reason": "r",
            "involvedObject": {"name": "x"}, "count": 2,
        });
        let new = builtin(core.clone(), "events.k8s.io/v1").unwrap();
        assert_eq!(new["note"], "m");
        assert_eq!(new["regarding"]["name"], "x");
        let back = builtin(new, "v1").unwrap();
        for (name, value) in core.as_object().unwrap() {
            assert_eq!(&back[name], value);
        }
    }
}
