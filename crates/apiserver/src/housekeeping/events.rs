//! Events are kept for an hour.

use super::Housekeeper;
use crate::{api::DeleteOptions, object, registry::text};

const KEPT_SECONDS: i64 = 3600;

impl Housekeeper {
    pub(super) async fn expire_events(&mut self) {
        let kinds = self.api.kinds();
        let (Some(events), Ok(snapshot)) = (
            kinds.find("", "v1", "events"),
            self.api.store.list("/events", "", None),
        ) else {
            return;
        };
        let now = self.api.clock.now().as_second();
        for entry in snapshot.entries {
            let event = entry.value();
            let written = text(&event["metadata"], "creationTimestamp");
            let last = [
                text(&event, "lastTimestamp"),
                text(&event, "eventTime"),
                written,
            ]
            .into_iter()
            .filter_map(|time| time.parse::<jiff::Timestamp>().ok())
            .map(jiff::Timestamp::as_second)
            .max();
            if last.is_none_or(|last| now - last < KEPT_SECONDS) {
                continue;
            }
            let at = (object::namespace(&event), object::name(&event));
            let options = DeleteOptions::default();
            if let Err(error) = self
                .api
                .delete_object(&self.context, &events, at, &options)
                .await
            {
                tracing::debug!(%error, "an old event cannot be removed");
            }
        }
    }
}
