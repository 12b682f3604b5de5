//! Several endpoints, lost answers, deadlines.

use std::time::Duration;

use pve::{Client, Error, Metrics, Upid};

use crate::fake::{Fake, Reply, token, version};

fn task() -> Upid {
    "UPID:pve1:00000001:00000001:00000001:qmstart:100:a@pve:"
        .parse()
        .unwrap()
}

fn pair(first: &Fake, second: &Fake) -> Client {
    Client::builder()
        .endpoint("pve1")
        .service(first.clone())
        .endpoint("pve2")
        .service(second.clone())
        .credentials(token("one"))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_was_not_sent_goes_to_the_next_endpoint_even_if_it_changes_something() {
    let down = Fake::new(|_, _| Reply::NotSent);
    let up = Fake::new(|_, _| Reply::Data(serde_json::Value::Null));
    let client = pair(&down, &up);
    client.stop_task(&task()).await.unwrap();
    client.stop_task(&task()).await.unwrap();
    assert_eq!(
        down.seen().len(),
        1,
        "the endpoint that works is preferred from then on"
    );
    assert_eq!(up.seen().len(), 2);
    let health: Vec<bool> = client
        .endpoints()
        .iter()
        .map(|endpoint| endpoint.healthy)
        .collect();
    assert_eq!(health, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_change_is_unknown_and_not_repeated() {
    let first = Fake::new(|_, _| Reply::Lost);
    let second = Fake::new(|_, _| Reply::Data(serde_json::Value::Null));
    let error = pair(&first, &second).stop_task(&task()).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!((first.seen().len(), second.seen().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_lets_a_change_hang_is_not_asked_next() {
    let hangs = Fake::new(|_, _| Reply::Hang);
    let works = Fake::new(|_, _| Reply::Data(serde_json::Value::Null));
    let client = pair(&hangs, &works);
    let error = client.stop_task(&task()).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!(works.seen().len(), 0, "a change is not repeated");
    assert!(!client.endpoints()[0].healthy);
    client.stop_task(&task()).await.unwrap();
    assert_eq!((hangs.seen().len(), works.seen().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_read_is_asked_for_elsewhere() {
    let first = Fake::new(|_, _| Reply::Lost);
    let second = Fake::new(|_, _| version("9.2.11"));
    pair(&first, &second).version().await.unwrap();
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_reach_another_leaves_the_outcome_unknown() {
    for status in 595..=599 {
        let fake = Fake::new(move |_, _| Reply::Failure(status, "Connection timed out".to_owned()));
        let error = fake.client().stop_task(&task()).await.unwrap_err();
        assert!(
            matches!(error, Error::OutcomeUnknown { .. }),
            "{status}: {error:?}"
        );
        assert_eq!(fake.seen().len(), 1);
        let error = fake.client().version().await.unwrap_err();
        assert!(
            matches!(error, Error::Unreachable { .. }),
            "{status}: {error:?}"
        );
        assert!(error.is_unknown());
        assert!(
            fake.client().endpoints()[0].healthy,
            "the one that answered is well"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_gives_up_after_a_few_attempts() {
    let fake = Fake::new(|_, _| Reply::Lost);
    let error = fake.client().version().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(fake.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_hangs_does_not_take_a_read_with_it() {
    let hanging = Fake::new(|_, _| Reply::Hang);
    let second = Fake::new(|_, _| version("9.2.11"));
    pair(&hanging, &second).version().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_answered_in_time_is_unknown() {
    let fake = Fake::new(|_, _| Reply::Hang);
    let client = fake.client().with_deadline(Duration::from_secs(2));
    let error = client.stop_task(&task()).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    let error = client.version().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_comes_back_when_the_other_fails() {
    let first = Fake::new(|_, before| {
        if before == 0 {
            Reply::NotSent
        } else {
            version("9.2.11")
        }
    });
    let second = Fake::new(|_, before| {
        if before == 0 {
            version("9.2.11")
        } else {
            Reply::NotSent
        }
    });
    let client = pair(&first, &second);
    client.version().await.unwrap();
    client.version().await.unwrap();
    assert_eq!((first.seen().len(), second.seen().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_server_error_is_not_repeated() {
    let fake = Fake::new(|_, _| Reply::Failure(500, "storage 'x' does not exist".to_owned()));
    assert!(matches!(
        fake.client().version().await,
        Err(Error::StorageMissing { .. })
    ));
    assert_eq!(fake.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_another_form_is_an_error_that_names_the_call() {
    let fake = Fake::new(|_, _| Reply::Data(serde_json::json!([1, 2])));
    let error = fake.client().version().await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Decode {
                call: "version",
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_kind() {
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = Metrics::register(&mut registry);
    let fake = Fake::new(|_, before| {
        if before == 0 {
            version("9.2.11")
        } else {
            Reply::Lost
        }
    });
    let client = Client::builder()
        .service(fake.clone())
        .credentials(token("one"))
        .metrics(metrics.clone())
        .build()
        .unwrap();
    client.version().await.unwrap();
    let _ = client.stop_task(&task()).await;
    assert_eq!(metrics.count("version"), 1);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(
        text.contains("pve_calls_total{call=\"tasks.stop\",outcome=\"Unknown\"} 1"),
        "{text}"
    );
    assert!(
        text.contains("pve_call_seconds_count{call=\"version\"} 1"),
        "{text}"
    );
}

/// Controllers spawn what waits for a call.
#[test]
fn futures_of_calls_can_be_spawned() {
    fn spawnable<T: Send>(_: T) {}
    let client = Fake::new(|_, _| Reply::Hang).client();
    let node = client.node(&"pve1".parse().unwrap());
    spawnable(client.version());
    spawnable(client.wait(&task()));
    spawnable(node.qemu("100".parse().unwrap()).status());
    spawnable(client.pools().list());
}
