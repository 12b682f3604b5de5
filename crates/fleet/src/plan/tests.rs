use super::*;

fn known() -> Known<'static> {
    Known {
        stage: Stage::Settled,
        changes: None,
        power: PowerFact::Running,
        lock: None,
        seed: None,
        answered: true,
        read: true,
        reads_late: false,
        pending: &[],
        restart: false,
        deaf: false,
        held: false,
        correct: true,
        beside: false,
    }
}

fn wanted(power: Power) -> Wanted {
    Wanted {
        power,
        update: Update::Live,
        management: Management::Full,
        grace: Duration::from_mins(1),
        keep_seed: false,
    }
}

fn change() -> Changes {
    Changes {
        set: [("cores".to_owned(), "4".to_owned())].into(),
        ..Changes::default()
    }
}

#[test]
fn a_guest_at_rest_needs_nothing() {
    assert_eq!(plan(wanted(Power::On), &known()), (vec![], After::Settled));
    let off = Known {
        power: PowerFact::Stopped,
        ..known()
    };
    assert_eq!(plan(wanted(Power::Off), &off), (vec![], After::Settled));
}

#[test]
fn a_new_guest_is_configured_grown_started_heard_and_cleaned_up_in_this_order() {
    let mut changes = change();
    changes.grow.insert("scsi0".to_owned(), Size::gib(40));
    let seed = Seed {
        volume: "v".to_owned(),
        glance: String::new(),
        state: SeedState::Uploaded,
    };
    let young = Known {
        stage: Stage::Made,
        changes: Some(&changes),
        power: PowerFact::Stopped,
        seed: Some(&seed),
        answered: false,
        read: false,
        ..known()
    };
    let (steps, _) = plan(wanted(Power::On), &young);
    assert_eq!(
        steps,
        vec![
            Step::Configure(changes.clone()),
            Step::Grow {
                slot: "scsi0".to_owned(),
                size: Size::gib(40)
            },
            Step::Start,
            Step::AskGuest,
            Step::EjectSeed,
            Step::RemoveSeed,
        ]
    );
}

#[test]
fn a_first_boot_image_stays_until_the_guest_has_read_it() {
    let seed = Seed {
        volume: "v".to_owned(),
        glance: String::new(),
        state: SeedState::Uploaded,
    };
    let unread = Known {
        seed: Some(&seed),
        read: false,
        ..known()
    };
    assert_eq!(plan(wanted(Power::On), &unread).0, vec![]);
    let keep = Wanted {
        keep_seed: true,
        ..wanted(Power::On)
    };
    assert_eq!(
        plan(
            keep,
            &Known {
                read: true,
                ..unread
            }
        )
        .0,
        vec![]
    );
}

#[test]
fn a_guest_that_answers_before_it_has_read_its_image_keeps_it() {
    let seed = Seed {
        volume: "v".to_owned(),
        glance: String::new(),
        state: SeedState::Uploaded,
    };
    for answered in [false, true] {
        let late = Known {
            seed: Some(&seed),
            answered,
            read: false,
            reads_late: true,
            ..known()
        };
        let (steps, _) = plan(wanted(Power::On), &late);
        assert!(!steps.contains(&Step::EjectSeed), "{steps:?}");
        let read = Known { read: true, ..late };
        let (steps, _) = plan(wanted(Power::On), &read);
        assert!(steps.starts_with(&[Step::EjectSeed, Step::RemoveSeed]));
    }
}

#[test]
fn staged_changes_wait_for_the_guest_to_be_off_and_live_ones_do_not() {
    let changes = change();
    let running = Known {
        changes: Some(&changes),
        ..known()
    };
    let staged = Wanted {
        update: Update::Staged,
        ..wanted(Power::On)
    };
    assert_eq!(plan(staged, &running).0, vec![]);
    assert_eq!(
        plan(wanted(Power::On), &running).0,
        vec![Step::Configure(changes.clone())]
    );
    let off = Known {
        power: PowerFact::Stopped,
        ..running
    };
    assert_eq!(
        plan(staged, &off).0,
        vec![Step::Configure(changes.clone()), Step::Start]
    );
}

#[test]
fn what_was_left_for_the_next_start_is_written_before_a_restart() {
    let changes = change();
    let asked = Known {
        changes: Some(&changes),
        restart: true,
        ..known()
    };
    let staged = Wanted {
        update: Update::Staged,
        ..wanted(Power::On)
    };
    let grace = Duration::from_mins(1);
    let steps = vec![Step::Configure(changes.clone()), Step::Reboot(grace)];
    assert_eq!(plan(staged, &asked).0, steps);
}

#[test]
fn an_image_that_was_surely_read_goes_although_the_guest_is_silent() {
    let seed = Seed {
        volume: "v".to_owned(),
        glance: String::new(),
        state: SeedState::Uploaded,
    };
    let silent = Known {
        seed: Some(&seed),
        answered: false,
        read: true,
        ..known()
    };
    let steps = vec![Step::EjectSeed, Step::RemoveSeed, Step::AskGuest];
    assert_eq!(plan(wanted(Power::On), &silent).0, steps);
}

#[test]
fn a_restart_happens_only_when_the_policy_or_the_caller_says_so() {
    let pending = ["cores".to_owned()];
    let waiting = Known {
        pending: &pending,
        ..known()
    };
    assert_eq!(plan(wanted(Power::On), &waiting).0, vec![]);
    let may = Wanted {
        update: Update::RestartIfNeeded,
        ..wanted(Power::On)
    };
    assert_eq!(
        plan(may, &waiting).0,
        vec![Step::Reboot(Duration::from_mins(1))]
    );
    let asked = Known {
        restart: true,
        ..known()
    };
    assert_eq!(
        plan(wanted(Power::On), &asked).0,
        vec![Step::Reboot(Duration::from_mins(1))]
    );
}

#[test]
fn who_did_not_hear_is_switched_off_and_started_only_where_it_shall_run() {
    let deaf = Known {
        restart: true,
        deaf: true,
        ..known()
    };
    let steps = vec![Step::Stop, Step::Start];
    assert_eq!(plan(wanted(Power::On), &deaf).0, steps);
    let unmanaged = wanted(Power::Unmanaged { started: true });
    let steps = vec![Step::Reboot(Duration::from_mins(1))];
    assert_eq!(plan(unmanaged, &deaf).0, steps);
}

#[test]
fn a_locked_or_observed_guest_is_left_alone() {
    let changes = change();
    let locked = Known {
        changes: Some(&changes),
        lock: Some("backup"),
        ..known()
    };
    let (steps, after) = plan(wanted(Power::Off), &locked);
    assert!(steps.is_empty());
    assert!(matches!(after, After::Unlocked(_)));
    let observed = Wanted {
        management: Management::Observe,
        ..wanted(Power::Off)
    };
    assert_eq!(
        plan(
            observed,
            &Known {
                lock: None,
                ..locked
            }
        ),
        (vec![], After::Settled)
    );
}

#[test]
fn a_guest_that_is_as_declared_is_so_while_somebody_holds_it() {
    let held = Known {
        lock: Some("backup"),
        ..known()
    };
    assert_eq!(plan(wanted(Power::On), &held), (vec![], After::Settled));
    let silent = Known {
        answered: false,
        ..held.clone()
    };
    let asks = (vec![Step::AskGuest], After::Settled);
    assert_eq!(plan(wanted(Power::On), &silent), asks);

    let waits = (vec![], After::Unlocked("backup".to_owned()));
    let young = Known {
        stage: Stage::Started,
        ..silent.clone()
    };
    assert_eq!(plan(wanted(Power::On), &young), waits);
    let seed = Seed {
        volume: "v".to_owned(),
        glance: String::new(),
        state: SeedState::Ejected,
    };
    let pending = ["cores".to_owned()];
    let beside = Known {
        beside: true,
        ..held.clone()
    };
    let read = Known {
        seed: Some(&seed),
        ..silent
    };
    let asked = Known {
        restart: true,
        ..held.clone()
    };
    let off = Known {
        power: PowerFact::Stopped,
        ..held.clone()
    };
    let due = Known {
        pending: &pending,
        ..held
    };
    let may = Wanted {
        update: Update::RestartIfNeeded,
        ..wanted(Power::On)
    };
    for known in [beside, read, asked, off, due] {
        assert_eq!(plan(may, &known), waits, "{known:?}");
    }
}

#[test]
fn who_is_only_looked_at_is_asked_for_its_addresses_and_nothing_else() {
    let changes = change();
    let observed = Wanted {
        management: Management::Observe,
        ..wanted(Power::Off)
    };
    let silent = Known {
        changes: Some(&changes),
        answered: false,
        ..known()
    };
    assert_eq!(plan(observed, &silent).0, [Step::AskGuest]);
    let off = Known {
        power: PowerFact::Stopped,
        ..silent
    };
    assert_eq!(plan(observed, &off).0, []);
}

#[test]
fn drift_is_left_alone_when_it_is_only_to_be_reported() {
    let changes = change();
    let drifted = Known {
        changes: Some(&changes),
        correct: false,
        ..known()
    };
    assert_eq!(plan(wanted(Power::On), &drifted).0, vec![]);
    let young = Known {
        stage: Stage::Made,
        ..drifted
    };
    assert_eq!(
        plan(wanted(Power::On), &young).0,
        vec![Step::Configure(changes.clone())]
    );
}

#[test]
fn every_power_wish_is_reached_from_every_state() {
    let after = |step: &Step, from: PowerFact| match step {
        Step::Start | Step::Resume | Step::Reboot(_) => PowerFact::Running,
        Step::Shutdown(_) | Step::Stop => PowerFact::Stopped,
        Step::Pause => PowerFact::Paused,
        Step::Suspend => PowerFact::Suspended,
        _ => from,
    };
    let goals = [
        (Power::On, vec![PowerFact::Running]),
        (Power::Off, vec![PowerFact::Stopped, PowerFact::Suspended]),
        (
            Power::HardOff,
            vec![PowerFact::Stopped, PowerFact::Suspended],
        ),
        (Power::Paused, vec![PowerFact::Paused]),
        (
            Power::Suspended,
            vec![PowerFact::Suspended, PowerFact::Stopped],
        ),
    ];
    for (power, reached) in goals {
        for from in [
            PowerFact::Running,
            PowerFact::Stopped,
            PowerFact::Paused,
            PowerFact::Suspended,
        ] {
            let (steps, _) = plan(
                wanted(power),
                &Known {
                    power: from,
                    ..known()
                },
            );
            let end = steps.iter().fold(from, |state, step| after(step, state));
            assert!(reached.contains(&end), "{power:?} from {from:?}: {steps:?}");
        }
    }
}

#[test]
fn nothing_is_written_of_a_suspended_guest_before_it_is_resumed() {
    let changes = change();
    let seed = Seed {
        volume: "v".to_owned(),
        glance: String::new(),
        state: SeedState::Ejected,
    };
    let suspended = Known {
        power: PowerFact::Suspended,
        lock: Some("suspended"),
        changes: Some(&changes),
        beside: true,
        seed: Some(&seed),
        ..known()
    };
    assert_eq!(plan(wanted(Power::On), &suspended).0, vec![Step::Start]);
    for power in [Power::Suspended, Power::Off] {
        assert_eq!(plan(wanted(power), &suspended).0, vec![]);
    }
    let resumed = Known {
        power: PowerFact::Running,
        lock: None,
        ..suspended
    };
    let steps = plan(wanted(Power::On), &resumed).0;
    assert_eq!(
        steps,
        vec![
            Step::Configure(changes.clone()),
            Step::Beside,
            Step::RemoveSeed
        ]
    );
}

#[test]
fn a_disk_of_a_running_guest_grows_before_it_is_set_and_a_new_one_after_it_was_made() {
    let mut changes = change();
    let slots = [
        ("scsi1", "ceph:vm-1-disk-1,ssd=1"),
        ("scsi2", "ceph:0,import-from=x"),
    ];
    let grow = |slot: &str| Step::Grow {
        slot: slot.to_owned(),
        size: Size::gib(20),
    };
    for (slot, value) in slots {
        changes.set.insert(slot.to_owned(), value.to_owned());
        changes.grow.insert(slot.to_owned(), Size::gib(20));
    }
    let running = Known {
        changes: Some(&changes),
        ..known()
    };
    let configure = Step::Configure(changes.clone());
    assert_eq!(
        plan(wanted(Power::On), &running).0,
        vec![grow("scsi1"), configure.clone(), grow("scsi2")]
    );
    // One that is off takes everything at once, and its growing need not be waited for before it is started.
    let off = Known {
        power: PowerFact::Stopped,
        ..running
    };
    assert_eq!(
        plan(wanted(Power::Off), &off).0,
        vec![configure, grow("scsi1"), grow("scsi2")]
    );
}

#[test]
fn what_can_only_be_written_while_it_is_off_lets_a_restart_pass_through_that() {
    let pending = ["memory".to_owned()];
    let held = Known {
        pending: &pending,
        restart: true,
        held: true,
        ..known()
    };
    let on = wanted(Power::On);
    let off_and_on = vec![Step::Shutdown(on.grace), Step::Start];
    assert_eq!(plan(on, &held).0, off_and_on);
    // Whose power is nobody's matter would stay off.
    let theirs = wanted(Power::Unmanaged { started: true });
    assert_eq!(plan(theirs, &held).0, vec![Step::Reboot(on.grace)]);
}
