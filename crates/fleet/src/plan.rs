//! The steps from what is to what shall be.
//!
//! [`plan`] is a pure function of what is wanted and what is known. It lists every step that can be
//! foreseen, in order; the executor does the first ones and plans again when it knows more. No step
//! depends on a choice made while it is done.

use std::time::Duration;

use crate::{
    Size, StorageId,
    diff::Changes,
    facts::PowerFact,
    intent::{Management, Power, Update},
    record::{Seed, SeedState, Stage},
};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write configuration.
    Configure(Changes),
    /// Write pool, high availability and firewall.
    Beside,
    /// Move a disk to another storage.
    MoveDisk {
        slot: String,
        storage: StorageId,
    },
    /// Grow a disk.
    Grow {
        slot: String,
        size: Size,
    },
    Start,
    /// Let it shut down; switch it off when it takes too long.
    Shutdown(Duration),
    Stop,
    Pause,
    Resume,
    Suspend,
    /// Shut down and start again, so that what is pending takes effect.
    Reboot(Duration),
    /// Ask the guest for its addresses.
    AskGuest,
    /// Take the first-boot image out of the drive.
    EjectSeed,
    /// Remove the first-boot image from its storage.
    RemoveSeed,
}

/// What comes after the steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum After {
    /// Nothing: all is well.
    Settled,
    /// Nobody else holds the guest any more.
    Unlocked(String),
}

/// What is known about a guest that exists and is ours.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    pub(crate) stage: Stage,
    /// What must change; `None` if what was written last is what is wanted.
    pub(crate) changes: Option<&'a Changes>,
    pub(crate) power: PowerFact,
    pub(crate) lock: Option<&'a str>,
    pub(crate) seed: Option<&'a Seed>,
    /// The guest has answered since it was started, or need not.
    pub(crate) answered: bool,
    /// The guest has surely read its first-boot image.
    pub(crate) read: bool,
    /// It answers before it has read that.
    pub(crate) reads_late: bool,
    /// Keys that wait for a restart.
    pub(crate) pending: &'a [String],
    /// A restart was asked for and not done.
    pub(crate) restart: bool,
    /// It did not shut down in time when it was to restart.
    pub(crate) deaf: bool,
    /// Of what waits for a restart, something can only be written while it is off.
    pub(crate) held: bool,
    /// Drift is corrected rather than reported.
    pub(crate) correct: bool,
    /// Pool, high availability or firewall are to be written.
    pub(crate) beside: bool,
}

/// What is wanted of the steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) power: Power,
    pub(crate) update: Update,
    pub(crate) management: Management,
    pub(crate) grace: Duration,
    pub(crate) keep_seed: bool,
}

/// Lists the steps.
pub(crate) fn plan(wanted: Wanted, known: &Known<'_>) -> (Vec<Step>, After) {
    if wanted.management == Management::Observe {
        let asks = known.power == PowerFact::Running && !known.answered;
        let steps = asks.then_some(Step::AskGuest);
        return (steps.into_iter().collect(), After::Settled);
    }
    let steps = steps(wanted, known);
    // Who is as declared is no less so while it is backed up; and asking the guest itself changes nothing.
    let changes = steps.iter().any(|step| *step != Step::AskGuest);
    match known.lock.filter(|lock| *lock != "suspended") {
        Some(lock) if changes || known.stage < Stage::Settled => {
            (Vec::new(), After::Unlocked(lock.to_owned()))
        }
        _ => (steps, After::Settled),
    }
}

fn steps(wanted: Wanted, known: &Known<'_>) -> Vec<Step> {
    let running = known.power.is_on();
    let mut steps = Vec::new();
    if known.power == PowerFact::Suspended {
        // PVE writes nothing of a guest whose memory it keeps: all of it is left until that is resumed.
        power(wanted, known, running, &mut steps);
        return steps;
    }
    let stops = running && matches!(wanted.power, Power::Off | Power::HardOff);
    if stops {
        // What cannot be done to a guest that runs must not keep it from being stopped.
        power(wanted, known, running, &mut steps);
    }
    change(wanted, known, running, &mut steps);
    if known.beside {
        steps.push(Step::Beside);
    }
    if !stops {
        power(wanted, known, running, &mut steps);
    }
    let will_run = match wanted.power {
        Power::On => true,
        Power::Unmanaged { started } => running || (started && known.stage < Stage::Started),
        _ => false,
    };
    if known.read {
        // Whoever has read it need not be heard first: an agent may never answer.
        seed(wanted, known, &mut steps);
    }
    if will_run && !known.answered {
        steps.push(Step::AskGuest);
    }
    if !known.read {
        seed(wanted, known, &mut steps);
    }
    steps
}

fn change(wanted: Wanted, known: &Known<'_>, running: bool, steps: &mut Vec<Step>) {
    let Some(changes) = known.changes else { return };
    // Before the guest was complete for the first time there is no drift to tolerate.
    let young = known.stage < Stage::Settled;
    if !known.correct && !young {
        return;
    }
    // What is left for the next start is written before the one that is asked for.
    if running && wanted.update == Update::Staged && !young && !known.restart {
        return;
    }
    let grow = |(slot, size): (&String, &Size)| Step::Grow {
        slot: slot.clone(),
        size: *size,
    };
    // What waits for the restart of a running guest has the size of the moment it was written, and no later one.
    let is_there = |value: &String| !value.contains("import-from=");
    let (first, last): (Vec<_>, Vec<_>) = changes
        .grow
        .iter()
        .partition(|(slot, _)| running && changes.set.get(*slot).is_some_and(is_there));
    steps.extend(first.into_iter().map(grow));
    if changes.configures() {
        steps.push(Step::Configure(changes.clone()));
    }
    for (slot, storage) in &changes.moves {
        steps.push(Step::MoveDisk {
            slot: slot.clone(),
            storage: storage.clone(),
        });
    }
    steps.extend(last.into_iter().map(grow));
}

fn power(wanted: Wanted, known: &Known<'_>, running: bool, steps: &mut Vec<Step>) {
    let first = known.stage < Stage::Started;
    match (wanted.power, known.power) {
        (Power::On, PowerFact::Stopped | PowerFact::Suspended) => steps.push(Step::Start),
        (Power::Unmanaged { started: true }, PowerFact::Stopped) if first => {
            steps.push(Step::Start);
        }
        (Power::On, PowerFact::Paused) => steps.push(Step::Resume),
        (Power::Off, PowerFact::Running) => steps.push(Step::Shutdown(wanted.grace)),
        (Power::Off | Power::HardOff, PowerFact::Paused) | (Power::HardOff, PowerFact::Running) => {
            steps.push(Step::Stop);
        }
        (Power::Paused, PowerFact::Running) => steps.push(Step::Pause),
        (Power::Paused, PowerFact::Stopped | PowerFact::Suspended) => {
            steps.extend([Step::Start, Step::Pause]);
        }
        (Power::Suspended, PowerFact::Running) => steps.push(Step::Suspend),
        (Power::Suspended, PowerFact::Paused) => steps.extend([Step::Resume, Step::Suspend]),
        _ => {}
    }
    if running && matches!(wanted.power, Power::On | Power::Unmanaged { .. }) {
        let pending = !known.pending.is_empty() && wanted.update == Update::RestartIfNeeded;
        if known.restart || pending {
            // Whose power is nobody's matter would stay off if nobody came back to start it.
            if known.deaf && wanted.power == Power::On {
                steps.extend([Step::Stop, Step::Start]);
            } else if known.held && wanted.power == Power::On {
                steps.extend([Step::Shutdown(wanted.grace), Step::Start]);
            } else {
                steps.push(Step::Reboot(wanted.grace));
            }
        }
    }
}

fn seed(wanted: Wanted, known: &Known<'_>, steps: &mut Vec<Step>) {
    let Some(seed) = known.seed else { return };
    if wanted.keep_seed {
        return;
    }
    match seed.state {
        SeedState::Planned | SeedState::Removed => {}
        // Most guests that answer have read it: the steps before come back only then.
        SeedState::Uploaded
            if !known.read && (known.reads_late || !steps.contains(&Step::AskGuest)) => {}
        SeedState::Uploaded | SeedState::Consumed => {
            steps.extend([Step::EjectSeed, Step::RemoveSeed]);
        }
        SeedState::Ejected => steps.push(Step::RemoveSeed),
    }
}

#[cfg(test)]
mod tests;
