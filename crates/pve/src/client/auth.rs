//! Who asks: tokens, tickets, and what happens when they are refused.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, Request, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::time::Instant;

use super::call::Call;
use super::credentials::Credentials;
use super::metrics::Outcome;
use super::{Body, Shared};
use crate::error::{Error, Result};
use crate::id::UserId;
use crate::params::Params;

/// A ticket lives two hours; from this age on it is renewed by whoever comes next.
const RENEW_AFTER: Duration = Duration::from_hours(1);
/// Up to this age a ticket is still used while its renewal fails.
const TRUST_UNTIL: Duration = Duration::from_mins(115);
/// The pause after a renewal that failed for another reason than the credentials.
const RENEW_PAUSE: Duration = Duration::from_mins(1);
/// What metrics call a login.
const LOGIN: &str = "access.ticket";
/// The first pause after credentials were refused; doubles up to the longest.
const HOLD: Duration = Duration::from_secs(5);
const LONGEST_HOLD: Duration = Duration::from_mins(2);

/// The credentials of now.
pub(crate) struct Auth {
    current: RwLock<Arc<Session>>,
}

impl Auth {
    pub(crate) fn new(credentials: Credentials) -> Self {
        Self {
            current: RwLock::new(Arc::new(Session::new(credentials))),
        }
    }

    pub(crate) fn replace(&self, credentials: Credentials) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current
            .replaced
            .store(true, std::sync::atomic::Ordering::Release);
        *current = Arc::new(Session::new(credentials));
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        self.current
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// One set of credentials with all that was learned about them.
pub(crate) struct Session {
    credentials: Credentials,
    ticket: RwLock<Option<Arc<Ticket>>>,
    /// Held while somebody logs in, so that one login serves all who wait.
    login: tokio::sync::Mutex<()>,
    refusals: Mutex<Refusals>,
    replaced: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct Refusals {
    count: u32,
    hold: Option<(Instant, String)>,
}

struct Ticket {
    text: SecretString,
    csrf: SecretString,
    obtained: Instant,
    renew_at: Mutex<Instant>,
}

/// What signs one request.
pub(crate) enum Grant {
    Token(HeaderValue),
    Ticket(Arc<TicketHeaders>),
}

pub(crate) struct TicketHeaders {
    source: Arc<Ticket>,
    cookie: HeaderValue,
    csrf: HeaderValue,
}

impl Grant {
    pub(crate) fn sign(&self, request: &mut Request<Body>) {
        match self {
            Self::Token(value) => {
                request
                    .headers_mut()
                    .insert(header::AUTHORIZATION, value.clone());
            }
            Self::Ticket(headers) => {
                request
                    .headers_mut()
                    .insert(header::COOKIE, headers.cookie.clone());
                if request.method() != Method::GET {
                    let name = HeaderName::from_static("csrfpreventiontoken");
                    request.headers_mut().insert(name, headers.csrf.clone());
                }
            }
        }
    }
}

#[derive(Deserialize)]
struct TicketAnswer {
    ticket: Option<String>,
    #[serde(rename = "CSRFPreventionToken")]
    csrf: Option<String>,
    #[serde(rename = "NeedTFA", default, deserialize_with = "crate::scalar::flag")]
    need_tfa: bool,
}

impl Session {
    fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            ticket: RwLock::default(),
            login: tokio::sync::Mutex::default(),
            refusals: Mutex::default(),
            replaced: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// What the next request is signed with.
    pub(crate) async fn grant(&self, shared: &Shared) -> Result<Grant> {
        self.held()?;
        match &self.credentials {
            Credentials::Token { id, secret } => {
                secret_header(&format!("PVEAPIToken={id}={}", secret.expose_secret()))
                    .map(Grant::Token)
            }
            Credentials::Password { user, password } => {
                let ticket = self.fresh_ticket(user, password, shared).await?;
                let cookie = crate::params::escape(ticket.text.expose_secret());
                Ok(Grant::Ticket(Arc::new(TicketHeaders {
                    cookie: secret_header(&format!("PVEAuthCookie={cookie}"))?,
                    csrf: secret_header(ticket.csrf.expose_secret())?,
                    source: ticket,
                })))
            }
        }
    }

    /// Notes that a request was let in.
    pub(crate) fn accepted(&self) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.count > 0 {
            *refusals = Refusals::default();
        }
    }

    /// Notes a 401; returns whether signing anew can help.
    pub(crate) fn refused(&self, grant: &Grant, reason: &str, second: bool) -> bool {
        if self.replaced.load(std::sync::atomic::Ordering::Acquire) {
            return true;
        }
        match grant {
            Grant::Ticket(headers) if !second => {
                let mut ticket = self.ticket.write().unwrap_or_else(PoisonError::into_inner);
                if ticket
                    .as_ref()
                    .is_some_and(|ticket| Arc::ptr_eq(ticket, &headers.source))
                {
                    *ticket = None;
                }
                true
            }
            Grant::Ticket(_) | Grant::Token(_) => {
                self.hold(reason);
                false
            }
        }
    }

    fn hold(&self, reason: &str) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = (HOLD * 2_u32.pow(refusals.count.min(5))).min(LONGEST_HOLD);
        refusals.count = refusals.count.saturating_add(1);
        refusals.hold = Some((Instant::now() + pause, reason.to_owned()));
        tracing::warn!(
            who = self.credentials.name(),
            ?pause,
            reason,
            "credentials refused"
        );
    }

    /// Answers in place of the server while credentials it refused are not worth asking again.
    fn held(&self) -> Result<()> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        match &refusals.hold {
            Some((until, reason)) if *until > Instant::now() => Err(Error::Unauthenticated {
                text: format!(
                    "{reason} (not asked again yet, after {} refusals)",
                    refusals.count
                ),
            }),
            _ => Ok(()),
        }
    }

    fn ticket(&self) -> Option<Arc<Ticket>> {
        self.ticket
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn fresh_ticket(
        &self,
        user: &UserId,
        password: &SecretString,
        shared: &Shared,
    ) -> Result<Arc<Ticket>> {
        if let Some(ticket) = self
            .ticket()
            .filter(|ticket| ticket.obtained.elapsed() < TRUST_UNTIL)
        {
            if !ticket.is_due() {
                return Ok(ticket);
            }
            // One renews, the others go on with what is still good.
            let Ok(_login) = self.login.try_lock() else {
                return Ok(ticket);
            };
            match self.ticket().filter(|now| !Arc::ptr_eq(now, &ticket)) {
                Some(renewed) => return Ok(renewed),
                None => {
                    return self.renew(user, password, &ticket, shared).await;
                }
            }
        }
        let _login = self.login.lock().await;
        if let Some(ticket) = self
            .ticket()
            .filter(|ticket| ticket.obtained.elapsed() < TRUST_UNTIL)
        {
            return Ok(ticket);
        }
        self.held()?;
        match self.log_in(user, password, shared).await {
            Ok(ticket) => Ok(ticket),
            Err(Error::Unauthenticated { text }) => {
                self.hold(&text);
                Err(Error::Unauthenticated { text })
            }
            Err(error) => Err(error),
        }
    }

    /// Renews a ticket with itself; with the password should that be refused. The old one is good for a while yet.
    async fn renew(
        &self,
        user: &UserId,
        password: &SecretString,
        old: &Arc<Ticket>,
        shared: &Shared,
    ) -> Result<Arc<Ticket>> {
        let mut result = self.log_in(user, &old.text, shared).await;
        if matches!(result, Err(Error::Unauthenticated { .. })) {
            result = self.log_in(user, password, shared).await;
        }
        result.or_else(|error| {
            tracing::warn!(who = %user, %error, "ticket cannot be renewed yet");
            *old.renew_at.lock().unwrap_or_else(PoisonError::into_inner) =
                Instant::now() + RENEW_PAUSE;
            Ok(old.clone())
        })
    }

    async fn log_in(
        &self,
        user: &UserId,
        password: &SecretString,
        shared: &Shared,
    ) -> Result<Arc<Ticket>> {
        let params = Params::new()
            .with("username", user)
            .with("password", password.expose_secret());
        let started = Instant::now();
        let answer = ask(params, shared).await;
        let outcome = Outcome::of(answer.as_ref().err());
        shared.metrics.observe(LOGIN, outcome, started.elapsed());
        let answer = answer?;
        if answer.need_tfa {
            return Err(Error::Unauthenticated {
                text: format!(
                    "{user} has a second factor, which nobody is there to give: use an API token (pveum user token add {user} oxmox)"
                ),
            });
        }
        let (Some(ticket), Some(csrf)) = (answer.ticket, answer.csrf) else {
            return Err(Error::Unauthenticated {
                text: "the server gave no ticket".to_owned(),
            });
        };
        let now = Instant::now();
        let ticket = Arc::new(Ticket {
            text: SecretString::from(ticket),
            csrf: SecretString::from(csrf),
            obtained: now,
            renew_at: Mutex::new(now + RENEW_AFTER),
        });
        *self.ticket.write().unwrap_or_else(PoisonError::into_inner) = Some(ticket.clone());
        Ok(ticket)
    }
}

async fn ask(params: Params, shared: &Shared) -> Result<TicketAnswer> {
    // Nothing is changed by asking for a ticket, whether or not it is given.
    let mut call = Call::post(LOGIN, "/access/ticket")
        .params(params)
        .harmless();
    let until = Instant::now() + shared.timeouts.call;
    let answer = shared
        .endpoints
        .send(&mut call, None, &shared.timeouts, until)
        .await?;
    answer.checked()?.decode(LOGIN)
}

impl Ticket {
    fn is_due(&self) -> bool {
        *self.renew_at.lock().unwrap_or_else(PoisonError::into_inner) <= Instant::now()
    }
}

fn secret_header(text: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text).map_err(|_| Error::Request {
        text: "credentials have characters a header cannot carry".to_owned(),
    })?;
    value.set_sensitive(true);
    Ok(value)
}
