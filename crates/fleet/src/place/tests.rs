use std::collections::BTreeSet;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::{
    facts::Space,
    intent::AntiAffinity,
    view::{GuestRow, StorageRow},
};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn vmid(n: u32) -> Vmid {
    Vmid::new(n).unwrap()
}

fn view(nodes: &[&str]) -> View {
    let now = Instant::now();
    let row = NodeRow {
        online: true,
        cpus: 16.0,
        cpu_used: 0.0,
        memory: Size::gib(64),
        memory_used: Size::gib(4),
        ha: None,
    };
    View {
        asked: now,
        guests: BTreeMap::new(),
        nodes: nodes.iter().map(|n| (node(n), row.clone())).collect(),
        storages: BTreeMap::new(),
        bridges: BTreeMap::new(),
    }
}

fn guest(on: &str, gib: u64, tags: &[&str]) -> GuestRow {
    GuestRow {
        node: node(on),
        kind: pve::GuestKind::Qemu,
        power: PowerFact::Running,
        name: "g".to_owned(),
        template: false,
        uptime: 1,
        cpus: 2.0,
        memory: Size::gib(gib),
        memory_used: Size::gib(gib),
        lock: None,
        tags: tags.iter().map(ToString::to_string).collect(),
        pool: None,
        ha: None,
    }
}

fn ask(gib: u64) -> Ask {
    Ask {
        cpus: 2,
        memory: Size::gib(gib),
        ..Ask::default()
    }
}

fn choose(view: &View, wishes: &Placement, ask: &Ask) -> Result<Choice, NoNode> {
    place(view, &BTreeMap::new(), &BTreeMap::new(), wishes, ask)
}

#[test]
fn the_emptier_node_is_taken_and_the_choice_says_why() {
    let mut view = view(&["pve1", "pve2"]);
    view.guests.insert(vmid(100), guest("pve1", 32, &[]));
    let choice = choose(&view, &Placement::default(), &ask(4)).unwrap();
    assert_eq!(choice.node, node("pve2"));
    assert!(choice.why.contains("6 % of its memory"), "{}", choice.why);
}

#[test]
fn offline_and_maintained_nodes_are_never_taken() {
    let mut view = view(&["pve1", "pve2", "pve3"]);
    view.nodes.get_mut(&node("pve1")).unwrap().online = false;
    view.nodes.get_mut(&node("pve2")).unwrap().ha = Some("maintenance".to_owned());
    assert_eq!(
        choose(&view, &Placement::default(), &ask(1)).unwrap().node,
        node("pve3")
    );
    view.nodes.remove(&node("pve3"));
    let why = choose(&view, &Placement::default(), &ask(1))
        .unwrap_err()
        .to_string();
    assert_eq!(
        why,
        "no node fits: pve1: is offline; pve2: is in maintenance"
    );
}

#[test]
fn a_guest_in_flight_counts_like_one_that_is_there() {
    let view = view(&["pve1", "pve2"]);
    let holds = BTreeMap::from([(
        vmid(101),
        Hold {
            node: Some(node("pve1")),
            memory: Size::gib(62),
            ..Hold::default()
        },
    )]);
    let chosen = place(
        &view,
        &holds,
        &BTreeMap::new(),
        &Placement::default(),
        &ask(4),
    )
    .unwrap();
    assert_eq!(chosen.node, node("pve2"));
    let only = Placement {
        nodes: vec![node("pve1")],
        ..Placement::default()
    };
    assert!(place(&view, &holds, &BTreeMap::new(), &only, &ask(4)).is_err());
}

#[test]
fn hard_anti_affinity_refuses_and_soft_only_prefers() {
    let mut view = view(&["pve1"]);
    view.guests
        .insert(vmid(100), guest("pve1", 1, &["database"]));
    let rule = |preferred| Placement {
        anti_affinity: vec![AntiAffinity {
            tags: vec!["database".to_owned()],
            preferred,
        }],
        ..Placement::default()
    };
    assert!(choose(&view, &rule(false), &ask(1)).is_err());
    assert!(choose(&view, &rule(true), &ask(1)).is_ok());
    view.nodes
        .insert(node("pve2"), view.nodes[&node("pve1")].clone());
    view.guests.insert(vmid(102), guest("pve2", 40, &[]));
    assert_eq!(
        choose(&view, &rule(true), &ask(1)).unwrap().node,
        node("pve2")
    );
}

#[test]
fn limits_of_guests_memory_and_sockets_are_kept() {
    let mut view = view(&["pve1"]);
    view.guests.insert(vmid(100), guest("pve1", 8, &[]));
    let most = Placement {
        max_guests: Some(1),
        ..Placement::default()
    };
    assert!(choose(&view, &most, &ask(1)).is_err());
    let free = Placement {
        min_free_memory: Some(Size::gib(50)),
        ..Placement::default()
    };
    assert!(choose(&view, &free, &ask(1)).is_ok());
    assert!(choose(&view, &free, &ask(8)).is_err());
    let numa = Placement {
        fit_numa: true,
        ..Placement::default()
    };
    let sockets = BTreeMap::from([(node("pve1"), 2)]);
    assert!(place(&view, &BTreeMap::new(), &sockets, &numa, &ask(33)).is_err());
    assert!(place(&view, &BTreeMap::new(), &sockets, &numa, &ask(30)).is_ok());
}

#[test]
fn room_on_storages_counts_what_is_promised_and_shared_storage_is_counted_once() {
    let mut view = view(&["pve1"]);
    let id = StorageId::new("ceph").unwrap();
    view.storages.insert(
        (id.clone(), node("pve1")),
        StorageRow {
            available: true,
            shared: true,
            kind: "rbd".to_owned(),
            content: vec!["images".to_owned()],
            space: Space {
                total: Size::gib(100),
                used: Size::gib(50),
            },
        },
    );
    let mut wanted = ask(1);
    wanted.space.insert(id.clone(), Size::gib(40));
    assert!(choose(&view, &Placement::default(), &wanted).is_ok());
    let holds = BTreeMap::from([(
        vmid(101),
        Hold {
            node: Some(node("pve9")),
            space: BTreeMap::from([(id, Size::gib(20))]),
            ..Hold::default()
        },
    )]);
    let refused = place(
        &view,
        &holds,
        &BTreeMap::new(),
        &Placement::default(),
        &wanted,
    );
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("30 GiB free, 40 GiB needed")
    );
}

#[test]
fn the_node_with_the_template_wins_and_moving_a_copy_is_the_last_resort() {
    let view = view(&["pve1", "pve2"]);
    let mut wanted = ask(1);
    wanted.sources = vec![Site {
        vmid: vmid(9000),
        node: node("pve2"),
        shared: false,
        disks_shared: false,
        storages: BTreeSet::new(),
    }];
    let choice = choose(&view, &Placement::default(), &wanted).unwrap();
    assert_eq!((choice.node, choice.reach), (node("pve2"), Reach::Here));
    let only = Placement {
        nodes: vec![node("pve1")],
        ..Placement::default()
    };
    assert_eq!(choose(&view, &only, &wanted).unwrap().reach, Reach::Move);
    wanted.linked = true;
    let none = choose(&view, &only, &wanted).unwrap_err().to_string();
    assert!(none.contains("on pve2 alone"), "{none}");
    wanted.sources[0].disks_shared = true;
    assert_eq!(choose(&view, &only, &wanted).unwrap().reach, Reach::Move);
    wanted.sources[0].shared = true;
    assert_eq!(choose(&view, &only, &wanted).unwrap().reach, Reach::Shared);
    wanted.sources[0].storages = BTreeSet::from([StorageId::new("san").unwrap()]);
    let none = choose(&view, &only, &wanted).unwrap_err().to_string();
    assert!(none.contains("does not have storage 'san'"), "{none}");
}

proptest! {
    #[test]
    fn promised_memory_never_exceeds_a_node(sizes in prop::collection::vec(1u64..20, 1..60)) {
        let view = view(&["pve1", "pve2", "pve3"]);
        let mut holds = BTreeMap::new();
        for (i, gib) in sizes.iter().enumerate() {
            let wanted = ask(*gib);
            if let Ok(choice) = place(&view, &holds, &BTreeMap::new(), &Placement::default(), &wanted) {
                let hold = Hold { node: Some(choice.node), memory: wanted.memory, cpus: 2, ..Hold::default() };
                holds.insert(vmid(100 + u32::try_from(i).unwrap()), hold);
            }
        }
        for name in ["pve1", "pve2", "pve3"] {
            let promised: Size = holds.values().filter(|h| h.node == Some(node(name))).map(|h| h.memory).sum();
            prop_assert!(promised <= Size::gib(64));
        }
    }
}

#[test]
fn a_node_without_the_bridge_is_not_chosen_and_the_reason_is_said() {
    let mut view = view(&["a", "b"]);
    view.bridges.insert(node("a"), vec!["vmbr0".to_owned()]);
    let both = vec!["vmbr0".to_owned(), "vmbr9".to_owned()];
    view.bridges.insert(node("b"), both.clone());
    let wish = Ask {
        bridges: vec!["vmbr9".to_owned()],
        ..ask(1)
    };
    let chosen = place(
        &view,
        &BTreeMap::new(),
        &BTreeMap::new(),
        &Placement::default(),
        &wish,
    );
    assert_eq!(chosen.unwrap().node, node("b"));
    view.bridges.insert(node("b"), vec!["vmbr0".to_owned()]);
    let refused = place(
        &view,
        &BTreeMap::new(),
        &BTreeMap::new(),
        &Placement::default(),
        &wish,
    );
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("no bridge 'vmbr9'")
    );
}

#[test]
fn a_guest_with_devices_goes_where_enough_of_them_are_left() {
    let view = view(&["a", "b", "c"]);
    let stock = |all, given| Stock { all, given };
    let gpus = |count, on: &[(&str, Stock)]| Ask {
        devices: vec![Device {
            kind: "PCI",
            mapping: "gpu".to_owned(),
            count,
            on: on
                .iter()
                .map(|(name, stock)| (node(name), *stock))
                .collect(),
        }],
        ..ask(1)
    };
    let there = [("b", stock(1, 1)), ("c", stock(2, 1))];
    let wishes = Placement::default();
    let chosen = choose(&view, &wishes, &gpus(1, &there)).unwrap();
    assert_eq!(chosen.node, node("c"));
    let refused = choose(&view, &wishes, &gpus(2, &there)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no node fits: a: has no device of the PCI mapping 'gpu'; \
         b: other guests have 1 of its 1 devices of the PCI mapping 'gpu', 2 needed; \
         c: other guests have 1 of its 2 devices of the PCI mapping 'gpu', 2 needed"
    );
    let refused = choose(&view, &wishes, &gpus(1, &[])).unwrap_err();
    assert!(refused.to_string().contains("Mapping.Use"), "{refused}");
}

#[test]
fn a_thin_disk_may_exceed_what_is_free_but_not_all_there_is() {
    let mut view = view(&["pve1"]);
    let id = StorageId::new("thin").unwrap();
    let row = StorageRow {
        available: true,
        shared: false,
        kind: "lvmthin".to_owned(),
        content: vec!["images".to_owned()],
        space: Space {
            total: Size::gib(100),
            used: Size::gib(90),
        },
    };
    view.storages.insert((id.clone(), node("pve1")), row);
    let disk = |gib| {
        let mut wanted = ask(1);
        wanted.disk(&view, &id, Size::gib(gib), false);
        choose(&view, &Placement::default(), &wanted)
    };
    assert!(disk(80).is_ok());
    let refused = disk(101).unwrap_err().to_string();
    assert!(
        refused.contains("has 100 GiB in all, too little for a disk of 101 GiB"),
        "{refused}"
    );
}

#[test]
fn a_guest_that_moves_has_a_share_of_both_nodes_until_it_is_seen_to_have_moved() {
    let mut view = view(&["pve1", "pve2"]);
    view.guests.insert(vmid(100), guest("pve1", 60, &["db"]));
    let now = Instant::now();
    let moving = Hold {
        node: Some(node("pve2")),
        memory: Size::gib(60),
        tags: vec!["db".to_owned()],
        moving: Some(Moving {
            from: node("pve1"),
            asked: now,
        }),
        ..Hold::default()
    };
    let holds = BTreeMap::from([(vmid(100), moving.clone())]);
    let sockets = BTreeMap::new();
    let wishes = Placement::default();
    let refused = place(&view, &holds, &sockets, &wishes, &ask(8)).unwrap_err();
    assert_eq!(refused.0.len(), 2, "{refused}");

    assert!(!moving.is_over(view.guests.get(&vmid(100)), now));
    assert!(moving.is_over(Some(&guest("pve2", 60, &[])), now));
    // Nobody has asked for it for a while.
    assert!(moving.is_over(view.guests.get(&vmid(100)), now + FORGOTTEN * 2));
}

#[test]
fn a_file_that_one_node_has_decides_for_it() {
    let mut view = view(&["pve1", "pve2"]);
    view.guests.insert(vmid(100), guest("pve2", 32, &[]));
    let mut ask = ask(4);
    ask.file = Some(File {
        volume: "local:iso/debian.iso".to_owned(),
        on: std::sync::Arc::new([node("pve2")].into()),
    });
    let choice = choose(&view, &Placement::default(), &ask).unwrap();
    assert_eq!(choice.node, node("pve2"));
    let elsewhere = Placement {
        nodes: vec![node("pve1")],
        ..Placement::default()
    };
    let none = choose(&view, &elsewhere, &ask).unwrap_err().to_string();
    assert!(
        none.contains("pve1: does not have 'local:iso/debian.iso'"),
        "{none}"
    );
}

#[test]
fn disks_that_name_no_storage_need_room_where_their_node_keeps_them() {
    let mut view = view(&["pve1", "pve2"]);
    view.guests.insert(vmid(100), guest("pve2", 32, &[]));
    for (on, gib) in [("pve1", 50), ("pve2", 500)] {
        let id = StorageId::new("vg").unwrap();
        let row = StorageRow {
            available: true,
            shared: false,
            kind: "lvm".to_owned(),
            content: vec!["images".to_owned()],
            space: Space {
                total: Size::gib(gib),
                used: Size::ZERO,
            },
        };
        view.storages.insert((id, node(on)), row);
    }
    let mut ask = ask(4);
    ask.content = "images";
    ask.anywhere = vec![(Size::gib(30), false), (Size::gib(30), false)];
    let choice = choose(&view, &Placement::default(), &ask).unwrap();
    assert_eq!(choice.node, node("pve2"));
    ask.content = "rootdir";
    let none = choose(&view, &Placement::default(), &ask).unwrap_err();
    let none = none.to_string();
    assert!(none.contains("pve1: has no storage for disks"), "{none}");
}
