use super::*;

fn upid(n: u32) -> Upid {
    format!("UPID:pve1:{n:08X}:00000001:65000000:qmstart:100:root@pam:")
        .parse()
        .unwrap()
}

fn owner() -> Owner {
    owner_of(0)
}

fn owner_of(n: u32) -> Owner {
    Owner::new(format!("o{n}")).unwrap()
}

/// Asks until the task has ended. Returns how late that was noticed, and after how many questions.
fn follow(tasks: &mut Tasks, upid: &Upid, ends: Instant) -> (Duration, u32) {
    let mut questions = 0;
    loop {
        let now = tasks.due().unwrap();
        let question = tasks.question(now);
        questions += 1;
        if now >= ends {
            tasks.end(upid, Ok(TaskEnd::Ok), None, now);
            return (now - ends, questions);
        }
        let running = tasks.names();
        tasks.asked(&question, &running, now, now);
    }
}

#[test]
fn a_step_that_takes_longer_than_thought_is_asked_for_later_next_time() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner(), StepKind::Clone, start, true);
    let first = tasks.due().unwrap();
    follow(&mut tasks, &upid(1), start + Duration::from_secs(2));
    for n in 2..6 {
        tasks.note(&upid(n), &owner(), StepKind::Clone, start, true);
        follow(&mut tasks, &upid(n), start + Duration::from_secs(2));
    }
    tasks.note(&upid(9), &owner(), StepKind::Clone, start, true);
    assert!(tasks.due().unwrap() > first + Duration::from_millis(500));
}

#[test]
fn a_step_that_has_always_ended_by_then_is_asked_for_sooner() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner(), StepKind::Start, start, true);
    let first = tasks.due().unwrap();
    let quick = start + Duration::from_millis(100);
    follow(&mut tasks, &upid(1), quick);
    for n in 2..6 {
        tasks.note(&upid(n), &owner(), StepKind::Start, start, true);
        follow(&mut tasks, &upid(n), quick);
    }
    tasks.note(&upid(9), &owner(), StepKind::Start, start, true);
    assert!(tasks.due().unwrap() < first);
}

#[test]
fn tasks_of_a_node_that_is_down_are_asked_for_once_it_is_back() {
    let now = Instant::now();
    let nodes = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    let elsewhere: Upid = "UPID:pve2:00000002:00000001:65000000:qmshutdown:7:root@pam:"
        .parse()
        .unwrap();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner_of(1), StepKind::Clone, now, true);
    tasks.note(&elsewhere, &owner_of(2), StepKind::Shutdown, now, true);
    assert!(tasks.reach(nodes(&["pve1", "pve2"])).is_empty());
    assert_eq!(tasks.reach(nodes(&["pve1"])), [owner_of(2)].into());
    assert!(tasks.reach(nodes(&["pve1"])).is_empty(), "told once");
    assert_eq!(tasks.out_of_reach(), std::slice::from_ref(&elsewhere));
    let due = tasks.due().unwrap();
    assert_eq!(tasks.question(due), Question::Each([upid(1)].into()));
    tasks.end(&upid(1), Ok(TaskEnd::Ok), None, due);
    assert_eq!(tasks.due(), None);
    tasks.reach(nodes(&["pve1", "pve2"]));
    let due = tasks.due().unwrap();
    assert_eq!(tasks.question(due), Question::Each([elsewhere].into()));
}

#[test]
fn a_guest_that_shuts_down_slowly_is_not_asked_for_every_second() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner(), StepKind::Shutdown, start, true);
    let (_, questions) = follow(&mut tasks, &upid(1), start + Duration::from_mins(1));
    assert!(questions <= 10, "{questions} questions in a minute");
}

#[test]
fn a_guest_with_habits_of_its_own_is_asked_for_by_them() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    let slow = |n: u32| {
        format!("UPID:pve1:{n:08X}:00000001:65000000:qmshutdown:7:root@pam:")
            .parse::<Upid>()
            .unwrap()
    };
    for n in 0..9 {
        tasks.note(&upid(n), &owner(), StepKind::Shutdown, start, true);
        follow(&mut tasks, &upid(n), start + Duration::from_secs(2));
        tasks.note(&slow(n), &owner(), StepKind::Shutdown, start, true);
        follow(&mut tasks, &slow(n), start + Duration::from_secs(30));
    }
    tasks.asked = None;
    tasks.note(&upid(10), &owner(), StepKind::Shutdown, start, true);
    let quick = tasks.due().unwrap();
    tasks.forget(&owner());
    tasks.note(&slow(10), &owner(), StepKind::Shutdown, start, true);
    let slow = tasks.due().unwrap();
    assert!(
        slow > quick + Duration::from_secs(10),
        "{:?} and {:?}",
        quick - start,
        slow - start
    );
}

#[test]
fn what_is_known_of_single_guests_does_not_grow_without_end() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    for n in 0..1000_u32 {
        let text = format!("UPID:pve1:{n:08X}:00000001:65000000:qmshutdown:{n}:root@pam:");
        let upid: Upid = text.parse().unwrap();
        tasks.note(&upid, &owner(), StepKind::Shutdown, start, true);
        tasks.end(&upid, Ok(TaskEnd::Ok), None, start + Duration::from_secs(5));
    }
    assert_eq!(tasks.habits.len(), SUBJECTS + 1);
}

#[test]
fn an_end_is_kept_until_its_owner_has_seen_it() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner(), StepKind::Start, now, true);
    assert!(matches!(tasks.standing(&upid(1)), Some(Standing::Flying)));
    assert_eq!(
        tasks.end(&upid(1), Ok(TaskEnd::Ok), None, now),
        Some((owner(), false))
    );
    assert!(matches!(tasks.standing(&upid(1)), Some(Standing::Ended(_))));
    assert_eq!(tasks.due(), None);
    tasks.settle(&upid(1));
    assert!(tasks.standing(&upid(1)).is_none());
}

#[test]
fn of_several_tasks_of_one_owner_the_last_decides_when_to_ask_for_all() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner(), StepKind::Start, now, true);
    let long = tasks.due().unwrap();
    tasks.note(&upid(2), &owner(), StepKind::UploadSeed, now, true);
    assert_eq!(tasks.due(), Some(long));
    let both = Question::All(BTreeSet::new());
    assert_eq!(tasks.question(long), both, "one list for both");
    tasks.note(&upid(3), &owner_of(1), StepKind::UploadSeed, now, true);
    assert!(tasks.due().unwrap() < long, "another owner does not wait");
}

#[test]
fn who_is_in_no_hurry_is_asked_for_later() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    tasks.note(&upid(1), &owner(), StepKind::Start, now, true);
    let soon = tasks.due().unwrap();
    tasks.no_hurry(&upid(1));
    assert!(tasks.due().unwrap() > soon);
}

#[test]
fn many_tasks_are_asked_for_by_one_list_at_most_twice_a_second() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    for n in 0..100 {
        tasks.note(&upid(n), &owner_of(n), StepKind::Start, now, true);
    }
    let first = tasks.due().unwrap();
    let question = tasks.question(first);
    assert_eq!(question, Question::All(BTreeSet::new()));
    tasks.asked(&question, &tasks.names(), first, first);
    assert!(tasks.due().unwrap() >= first + Duration::from_millis(500));
}

#[test]
fn who_should_long_have_ended_is_asked_for_by_name_though_a_list_shows_it_running() {
    let now = Instant::now();
    let mut tasks = Tasks::default();
    for n in 0..3 {
        tasks.note(&upid(n), &owner_of(n), StepKind::Start, now, true);
    }
    let mut named = 0;
    while tasks.due().unwrap() < now + Duration::from_secs(10) {
        let at = tasks.due().unwrap();
        let question = tasks.question(at);
        if let Question::All(names) = &question {
            named += names.len();
        }
        tasks.asked(&question, &tasks.names(), at, at);
    }
    assert!((3..=9).contains(&named), "{named} questions by name");
}

#[test]
fn a_start_that_waits_for_another_task_does_not_teach_how_long_a_start_takes() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    for n in 0..9 {
        let (grow, behind) = (upid(2 * n), upid(2 * n + 1));
        tasks.note(&grow, &owner(), StepKind::Resize, start, true);
        tasks.note(&behind, &owner(), StepKind::Start, start, true);
        tasks.asked = None;
        tasks.end(&grow, Ok(TaskEnd::Ok), None, start + Duration::from_secs(1));
        follow(&mut tasks, &behind, start + Duration::from_secs(3));
    }
    tasks.asked = None;
    tasks.note(&upid(100), &owner(), StepKind::Start, start, true);
    assert!(tasks.due().unwrap() < start + Duration::from_secs(1));
    tasks.note(&upid(101), &owner(), StepKind::Start, start, true);
    assert!(tasks.due().unwrap() > start + Duration::from_secs(2));
}

#[test]
fn a_step_that_takes_several_times_as_long_as_before_is_slow() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    let take = |tasks: &mut Tasks, n: u32, millis: u64| {
        tasks.asked = None;
        tasks.note(&upid(n), &owner(), StepKind::Start, start, true);
        let ends = start + Duration::from_millis(millis);
        loop {
            let now = tasks.due().unwrap();
            if now >= ends {
                return tasks.end(&upid(n), Ok(TaskEnd::Ok), None, now).unwrap().1;
            }
            let question = tasks.question(now);
            tasks.asked(&question, &tasks.names(), now, now);
        }
    };
    for n in 0..10 {
        assert!(!take(&mut tasks, n, 300), "the usual is not slow");
    }
    assert!(!take(&mut tasks, 20, 500));
    assert!(take(&mut tasks, 21, 4_000));
}

#[test]
fn a_step_that_takes_long_on_this_cluster_is_known_to_do_so() {
    let start = Instant::now();
    let mut tasks = Tasks::default();
    let limit = Duration::from_secs(5);
    assert!(tasks.ends_within(StepKind::Resize, limit));
    for n in 0..5 {
        tasks.asked = None;
        tasks.note(&upid(n), &owner(), StepKind::Resize, start, true);
        follow(&mut tasks, &upid(n), start + Duration::from_secs(30));
    }
    assert!(!tasks.ends_within(StepKind::Resize, limit));
}

#[test]
fn a_shutdown_is_noticed_right_after_the_second_in_which_guests_usually_go() {
    let mut tasks = Tasks::default();
    // Most are gone within four seconds, some take nine.
    let usual = [4, 5, 4, 6, 4, 4, 5, 7, 4, 9, 4, 5, 4, 6, 4, 8];
    let (mut late, mut start) = (Vec::new(), Instant::now());
    for (n, seconds) in (1..).zip(usual.iter().cycle().take(64)) {
        let name = format!("UPID:pve1:{n:08X}:00000001:65000000:qmshutdown:{n}:root@pam:");
        let upid: Upid = name.parse().unwrap();
        start += Duration::from_mins(1);
        let ends = start + Duration::from_secs(*seconds) + Duration::from_millis(105);
        tasks.note(&upid, &owner(), StepKind::Shutdown, start, true);
        let mut questions = 0;
        late.push(loop {
            let now = tasks.due().unwrap();
            let question = tasks.question(now);
            questions += 1;
            if now >= ends {
                tasks.end(&upid, Ok(TaskEnd::Ok), Some(*seconds), now);
                break now - ends;
            }
            tasks.asked(&question, &[upid.clone()].into(), now, now);
        });
        assert!(questions <= 3, "{questions} questions about {seconds} s");
    }
    let mut late = late.split_off(16);
    late.sort();
    let middle = late[late.len() / 2];
    assert!(
        middle <= Duration::from_millis(50),
        "noticed {middle:?} late"
    );
}
