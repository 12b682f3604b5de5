//! A watch that its server ends at once is not begun again at once.
//!
//! kube begins a watch that ended without an error anew without telling anybody, so a server (or a proxy before it) that ends
//! every watch as soon as it is open would be asked as fast as it answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{Client, client::Body};
use tokio::time::Instant;

/// The least time between the beginnings of two watches of the same objects.
const SHORTEST: Duration = Duration::from_secs(1);

/// When the next watch of each path may begin.
#[derive(Clone, Default)]
struct Pace(Arc<Mutex<BTreeMap<String, Instant>>>);

impl Pace {
    /// When a watch of these objects may begin that is asked for now.
    fn turn(&self, path: &str) -> Instant {
        let now = Instant::now();
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = next.get(path).map_or(now, |turn| now.max(*turn));
        next.insert(path.to_owned(), turn + SHORTEST);
        turn
    }
}

/// The same client with a pause between two watches of the same objects.
pub(crate) fn paced(client: &Client) -> Client {
    let (inner, pace) = (client.clone(), Pace::default());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|part| part == "watch=true");
        let turn = watches.then(|| pace.turn(request.uri().path()));
        let inner = inner.clone();
        async move {
            if let Some(turn) = turn {
                tokio::time::sleep_until(turn).await;
            }
            inner.send(request).await
        }
    });
    Client::new(service, client.default_namespace())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use api::cluster_api::Cluster;
    use futures::StreamExt as _;
    use kube::{Api, runtime::watcher};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn watches_that_end_at_once_are_not_begun_as_fast_as_that() {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = asked.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let watches = request.uri().query().unwrap_or_default().contains("watch");
            let list = r#"{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"ClusterList","metadata":{"resourceVersion":"1"},"items":[]}"#;
            let body = if watches {
                counted.fetch_add(1, Ordering::SeqCst);
                ""
            } else {
                list
            };
            // A server that is there takes its time, however little that is.
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let body = Body::from(body.as_bytes().to_vec());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        let api: Api<Cluster> = Api::all(paced(&Client::new(server, "default")));
        let watch = watcher::watcher(api, watcher::Config::default()).for_each(|_| async {});
        let minute = tokio::time::timeout(Duration::from_mins(1), watch);
        assert!(minute.await.is_err(), "the watch goes on");
        let asked = asked.load(Ordering::SeqCst);
        assert!((30..=61).contains(&asked), "{asked} times in a minute");
    }
}
