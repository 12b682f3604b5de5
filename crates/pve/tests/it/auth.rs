//! Tokens and tickets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pve::{Client, Credentials, Error};
use serde_json::json;

use crate::fake::{Fake, Reply, Seen, token, version};

/// A server that gives tickets `T0`, `T1`, ... and takes those from `valid_from` on.
fn ticket_server(valid_from: Arc<AtomicU32>) -> Fake {
    let given = AtomicU32::new(0);
    Fake::new(move |seen: &Seen, _| {
        if seen.path == "/access/ticket" {
            let number = given.fetch_add(1, Ordering::SeqCst);
            return Reply::Data(json!({
                "ticket": format!("T{number}"), "CSRFPreventionToken": format!("C{number}"), "username": "a@pve",
            }));
        }
        let number = seen
            .header("cookie")
            .strip_prefix("PVEAuthCookie=T")
            .unwrap()
            .parse::<u32>()
            .unwrap();
        if number < valid_from.load(Ordering::SeqCst) {
            return Reply::Failure(401, "Authentication failed!".to_owned());
        }
        version("9.2.11")
    })
}

fn password_client(fake: &Fake) -> Client {
    let credentials = Credentials::password("a@pve", "geheim").unwrap();
    Client::builder()
        .service(fake.clone())
        .credentials(credentials)
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_travels_in_a_header_without_any_login() {
    let fake = Fake::new(|_, _| version("9.2.11"));
    fake.client().version().await.unwrap();
    let seen = fake.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        seen[0].header("authorization"),
        "PVEAPIToken=oxmox@pve!test=one"
    );
}

#[tokio::test(start_paused = true)]
async fn one_login_serves_all_who_wait_for_it() {
    let fake = ticket_server(Arc::default());
    let client = password_client(&fake);
    let calls = (0..10).map(|_| client.version());
    for result in futures::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!(fake.count("/access/ticket"), 1);
    assert_eq!(fake.count("/version"), 10);
}

#[tokio::test(start_paused = true)]
async fn the_csrf_token_goes_with_changes_only() {
    let fake = ticket_server(Arc::default());
    let client = password_client(&fake);
    client.version().await.unwrap();
    let task = "UPID:pve1:00000001:00000001:00000001:qmstart:100:a@pve:"
        .parse()
        .unwrap();
    let _ = client.stop_task(&task).await;
    let seen = fake.seen();
    assert_eq!(seen[1].header("csrfpreventiontoken"), "");
    assert_eq!(seen[2].header("csrfpreventiontoken"), "C0");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_renewed_with_itself_long_before_its_end() {
    let fake = ticket_server(Arc::default());
    let client = password_client(&fake);
    client.version().await.unwrap();
    tokio::time::advance(Duration::from_mins(59)).await;
    client.version().await.unwrap();
    assert_eq!(fake.count("/access/ticket"), 1);
    tokio::time::advance(Duration::from_mins(2)).await;
    client.version().await.unwrap();
    let logins: Vec<Seen> = fake
        .seen()
        .into_iter()
        .filter(|seen| seen.path == "/access/ticket")
        .collect();
    assert_eq!(logins.len(), 2);
    assert!(
        logins[1].body.ends_with("password=T0"),
        "{}",
        logins[1].body
    );
    assert_eq!(
        fake.seen().last().unwrap().header("cookie"),
        "PVEAuthCookie=T1"
    );
}

#[tokio::test(start_paused = true)]
async fn the_old_ticket_is_good_while_its_renewal_fails() {
    let fake = Fake::new(|seen, before| match (seen.path.as_str(), before) {
        ("/access/ticket", 0) => {
            Reply::Data(json!({ "ticket": "T0", "CSRFPreventionToken": "C0" }))
        }
        ("/access/ticket", _) => Reply::Lost,
        _ => version("9.2.11"),
    });
    let client = password_client(&fake);
    client.version().await.unwrap();
    tokio::time::advance(Duration::from_mins(70)).await;
    for _ in 0..5 {
        client.version().await.unwrap();
    }
    // A few attempts, then a pause: a renewal that cannot succeed is not tried by every call.
    assert_eq!(fake.count("/access/ticket"), 4);
    assert_eq!(fake.count("/version"), 6);
}

#[tokio::test(start_paused = true)]
async fn a_refused_ticket_leads_to_one_new_login_and_the_call_is_repeated() {
    let valid_from = Arc::new(AtomicU32::new(0));
    let fake = ticket_server(valid_from.clone());
    let client = password_client(&fake);
    client.version().await.unwrap();
    valid_from.store(1, Ordering::SeqCst);
    let calls = (0..5).map(|_| client.version());
    for result in futures::future::join_all(calls).await {
        result.unwrap();
    }
    assert_eq!(
        fake.count("/access/ticket"),
        2,
        "five refused calls share one login"
    );
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_not_tried_in_a_loop() {
    let fake = Fake::new(|seen, _| match seen.path.as_str() {
        "/access/ticket" => Reply::Failure(401, "authentication failure".to_owned()),
        _ => version("9.2.11"),
    });
    let client = password_client(&fake);
    for _ in 0..20 {
        assert!(matches!(
            client.version().await,
            Err(Error::Unauthenticated { .. })
        ));
    }
    assert_eq!(fake.seen().len(), 1);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(client.version().await.is_err());
    assert_eq!(
        fake.seen().len(),
        2,
        "after the pause it is tried once more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_rests_too_and_a_new_one_is_used_at_once() {
    let fake = Fake::new(|seen, _| {
        if seen.header("authorization").ends_with("=one") {
            Reply::Failure(401, "Authentication failed!".to_owned())
        } else {
            version("9.2.11")
        }
    });
    let client = fake.client();
    for _ in 0..5 {
        assert!(matches!(
            client.version().await,
            Err(Error::Unauthenticated { .. })
        ));
    }
    assert_eq!(fake.seen().len(), 1);
    client.set_credentials(token("two"));
    client.version().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_survives_the_replacement_of_its_token() {
    let fake = Fake::new(|seen, _| {
        if seen.header("authorization").ends_with("=one") {
            let refusal = Reply::Failure(401, "Authentication failed!".to_owned());
            Reply::Late(Duration::from_secs(3), Box::new(refusal))
        } else {
            version("9.2.11")
        }
    });
    let client = fake.client();
    let (result, ()) = tokio::join!(client.version(), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.set_credentials(token("two"));
    });
    result.unwrap();
    assert_eq!(fake.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_waited_for_a_login_in_vain_has_changed_nothing() {
    let fake = Fake::new(|_, _| Reply::Hang);
    let client = password_client(&fake).with_deadline(Duration::from_secs(5));
    let task = "UPID:pve1:00000001:00000001:00000001:qmstart:100:a@pve:"
        .parse()
        .unwrap();
    let error = client.stop_task(&task).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert_eq!(fake.count("/access/ticket"), fake.seen().len());
}

#[tokio::test(start_paused = true)]
async fn a_second_factor_is_refused_with_a_way_out() {
    let fake = Fake::new(|_, _| {
        Reply::Data(json!({ "ticket": "T", "CSRFPreventionToken": "C", "NeedTFA": 1 }))
    });
    let error = password_client(&fake).version().await.unwrap_err();
    assert!(error.to_string().contains("API token"), "{error}");
}

#[test]
fn secrets_do_not_show() {
    let fake = Fake::new(|_, _| version("9.2.11"));
    let shown = format!(
        "{:?} {:?} {:?}",
        token("geheim"),
        fake.client(),
        Credentials::password("a@pve", "geheim")
    );
    assert!(
        !shown.contains("geheim") && shown.contains("oxmox@pve!test"),
        "{shown}"
    );
    let error = Credentials::token_line("root@pam!x geheim").unwrap_err();
    assert!(!error.to_string().contains("geheim"), "{error}");
}
