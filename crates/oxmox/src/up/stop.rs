//! The end: what is under way is waited for, unless somebody is in a hurry.

use std::time::Duration;

use crate::output;

/// What takes no longer needs no words.
const SHORTLY: Duration = Duration::from_secs(1);

/// Waits for the end, and says how to hurry when it takes a while. Comes back with whether it was waited for: who asks again to
/// stop is not kept.
pub(super) async fn unless_hurried(
    end: impl Future<Output = ()>,
    again: impl Future<Output = ()>,
) -> bool {
    let patient = async {
        tokio::time::sleep(SHORTLY).await;
        output::say("still stopping: what is under way is waited for; another Ctrl-C ends at once");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = end => true,
        () = again => {
            output::say("ended at once; the next start looks at what was under way");
            false
        }
        () = patient => true,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_end_is_waited_for_until_somebody_asks_again() {
        let long = Duration::from_hours(1);
        assert!(unless_hurried(tokio::time::sleep(long), pending()).await);
        assert!(unless_hurried(ready(()), pending()).await);
        assert!(!unless_hurried(pending(), tokio::time::sleep(long)).await);
    }
}
