//! Objects between the versions of their kind.

use serde_json::{Value, json};

use super::Api;
use crate::{
    object,
    registry::{Resource, crd::Conversion, text},
    status::{Result, Status},
};

impl Api {
    /// Gives an object the shape of another version of its kind.
    pub(crate) async fn convert(
        &self,
        resource: &Resource,
        object: Value,
        to: &str,
    ) -> Result<Value> {
        let from = text(&object, "apiVersion").to_owned();
        if from == to {
            return Ok(object);
        }
        let Some(crd) = &resource.crd else {
            return builtin(object, to);
        };
        match &crd.conversion {
            Conversion::None => {
                let mut object = object;
                object["apiVersion"] = json!(to);
                Ok(object)
            }
            Conversion::Webhook(webhook) => self.convert_by_webhook(webhook, object, to).await,
        }
    }

    async fn convert_by_webhook(&self, webhook: &Value, object: Value, to: &str) -> Result<Value> {
        let _ = (webhook, object, to);
        Err(Status::internal("conversion webhooks cannot be called"))
    }
}

/// Events are the one built-in kind served in two shapes of the same objects.
fn builtin(mut object: Value, to: &str) -> Result<Value> {
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
        assert_eq!(builtin(new, "v1").unwrap(), core);
    }
}
