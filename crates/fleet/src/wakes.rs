//! Telling front-ends whom to look at.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures::Stream;
use tokio::sync::mpsc;

use crate::Owner;

/// Everybody who wants to hear of owners.
#[derive(Clone, Default)]
pub(crate) struct Wakes(Arc<Mutex<Vec<mpsc::UnboundedSender<Owner>>>>);

impl Wakes {
    pub(crate) fn subscribe(&self) -> WakeStream {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
        WakeStream(receiver)
    }

    pub(crate) fn wake(&self, owner: &Owner) {
        let mut subscribers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|subscriber| subscriber.send(owner.clone()).is_ok());
    }
}

/// Owners whose matter may have moved, in the order it did.
///
/// Every front-end gets every owner and takes its own.
#[derive(Debug)]
pub struct WakeStream(mpsc::UnboundedReceiver<Owner>);

impl WakeStream {
    /// The next owner; `None` when the fleet is gone.
    pub async fn next_owner(&mut self) -> Option<Owner> {
        self.0.recv().await
    }
}

impl Stream for WakeStream {
    type Item = Owner;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Owner>> {
        self.0.poll_recv(cx)
    }
}
