//! What is admitted, what is warned of, what is refused and in which words.

#![expect(
    clippy::needless_pass_by_value,
    reason = "specs are written where they are used, and `json!` makes them values"
)]

use serde_json::{Value, json};

use super::*;

/// An answer, as far as its author sees it.
struct Answer {
    allowed: bool,
    message: String,
    warnings: Vec<String>,
}

fn ask(kind: &str, old: Option<&Value>, new: &Value, dry_run: bool) -> Answer {
    let plural = format!("{}s", kind.to_lowercase());
    let whole = |spec: &Value| {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1beta1"), "kind": kind,
            "metadata": {"name": "x", "namespace": "default", "annotations": {}},
        });
        for (key, value) in spec.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7", "name": "x", "namespace": "default", "dryRun": dry_run,
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "kind": {"group": GROUP, "version": "v1beta1", "kind": kind},
            "resource": {"group": GROUP, "version": "v1beta1", "resource": plural},
            "userInfo": {"username": "somebody"},
            "object": whole(new), "oldObject": old.map(whole),
        },
    });
    let response = validate(serde_json::from_value(review).unwrap())
        .response
        .unwrap();
    assert_eq!(response.uid, "7");
    Answer {
        allowed: response.allowed,
        message: response.result.message,
        warnings: response.warnings.unwrap_or_default(),
    }
}

fn create(kind: &str, spec: Value) -> Answer {
    ask(kind, None, &json!({"spec": spec}), false)
}

fn update(kind: &str, old: Value, new: Value) -> Answer {
    ask(
        kind,
        Some(&json!({"spec": old})),
        &json!({"spec": new}),
        false,
    )
}

#[track_caller]
fn refused(answer: &Answer, field: &str, words: &str) {
    assert!(!answer.allowed, "admitted");
    assert!(
        answer.message.contains(&format!("{field}: ")) && answer.message.contains(words),
        "{}",
        answer.message
    );
}

#[track_caller]
fn admitted(answer: &Answer) {
    assert!(answer.allowed, "{}", answer.message);
}

fn cluster(more: Value) -> Value {
    let mut spec = json!({
        "controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443},
        "ipv4Config": {"addresses": ["10.0.0.11-10.0.0.50"], "prefix": 24, "gateway": "10.0.0.1"},
        "dnsServers": ["10.0.0.1"],
    });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn a_plain_cluster_is_admitted() {
    let answer = create("ProxmoxCluster", cluster(json!({})));
    admitted(&answer);
    assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
}

#[test]
fn an_endpoint_among_the_machines_addresses_is_refused_wherever_these_are_described() {
    let within = json!({"addresses": ["10.0.0.0/28"], "prefix": 24});
    for more in [
        json!({"ipv4Config": within}),
        json!({"zoneConfig": [{"zone": "dmz", "ipv4Config": within}]}),
        json!({"settings": {"instances": [{"name": "a", "network": {"ipv4Config": within}}]}}),
    ] {
        let answer = create("ProxmoxCluster", cluster(more));
        refused(
            &answer,
            "spec.controlPlaneEndpoint.host",
            "10.0.0.10 lies in spec.",
        );
    }
    // Unless it was claimed there, so that nobody else is given it.
    let claimed = json!({
        "ipv4Config": within,
        "controlPlaneEndpointPool": {"kind": "InClusterIPPool", "name": "prod-v4-icip"},
    });
    admitted(&create("ProxmoxCluster", cluster(claimed)));
}

#[test]
fn an_endpoint_is_an_address_or_a_name() {
    let at = |host: &str| cluster(json!({"controlPlaneEndpoint": {"host": host, "port": 6443}}));
    admitted(&create("ProxmoxCluster", at("api.example.com")));
    refused(
        &create("ProxmoxCluster", at("10.0.0.300")),
        "spec.controlPlaneEndpoint.host",
        "neither an address nor a host name",
    );
}

#[test]
fn a_hosted_control_plane_brings_its_endpoint_later() {
    let before = json!({"externalManagedControlPlane": true, "dnsServers": ["10.0.0.1"]});
    let mut after = before.clone();
    after["controlPlaneEndpoint"] = json!({"host": "10.0.0.10", "port": 6443});
    admitted(&create("ProxmoxCluster", before.clone()));
    let answer = update("ProxmoxCluster", before, after);
    admitted(&answer);
    assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
}

#[test]
fn every_wrong_address_is_named_at_once() {
    let answer = create(
        "ProxmoxCluster",
        cluster(json!({
            "ipv4Config": {"addresses": ["10.0.0.50-10.0.0.11", "2001:db8::/64"], "prefix": 64, "gateway": "here"},
            "dnsServers": ["dns.example.com"],
        })),
    );
    refused(&answer, "spec.ipv4Config.addresses[0]", "nor a range");
    refused(
        &answer,
        "spec.ipv4Config.addresses[1]",
        "move it to ipv6Config",
    );
    refused(&answer, "spec.ipv4Config.prefix", "32 at most");
    refused(&answer, "spec.ipv4Config.gateway", "not an address");
    refused(&answer, "spec.dnsServers[0]", "not an address");
}

#[test]
fn pools_that_overlap_are_warned_of() {
    let answer = create(
        "ProxmoxCluster",
        cluster(
            json!({"zoneConfig": [{"zone": "dmz", "ipv4Config": {"addresses": ["10.0.0.50"], "prefix": 24}}]}),
        ),
    );
    admitted(&answer);
    assert_eq!(answer.warnings.len(), 1, "{:?}", answer.warnings);
    assert!(answer.warnings[0].contains("overlaps spec.ipv4Config"));
}

#[test]
fn modes_and_instances_must_make_sense_together() {
    let settings = |mode: &str, instances: Value| {
        create(
            "ProxmoxCluster",
            cluster(json!({"settings": {"mode": mode, "instances": instances}})),
        )
    };
    refused(
        &settings("MultiInstance", json!([{"name": "a", "weight": 0}])),
        "spec.settings.instances",
        "none takes machines",
    );
    let second = settings("Default", json!([{"name": "a"}, {"name": "b"}]));
    admitted(&second);
    assert!(second.warnings[0].starts_with("spec.settings.instances[1]: mode Default"));
    let twice = json!([
        {"name": "a", "credentialsRef": {"name": "s"}}, {"name": "b", "credentialsRef": {"name": "s"}},
    ]);
    assert_eq!(settings("MultiInstance", twice).warnings.len(), 1);
}

#[test]
fn node_groups_belong_to_listed_instances() {
    let groups = |groups: Value| {
        let instances =
            json!({"mode": "MultiInstance", "instances": [{"name": "txl"}, {"name": "fra"}]});
        create(
            "ProxmoxCluster",
            cluster(json!({"settings": instances, "nodeGroups": groups})),
        )
    };
    let group = |name: &str, instance: Option<&str>| json!([{"name": name, "instance": instance, "nodes": ["pve1"]}]);
    admitted(&groups(group("rack-1", Some("txl"))));
    refused(
        &groups(group("rack-1", Some("muc"))),
        "spec.nodeGroups[0].instance",
        "no instance \"muc\"",
    );
    refused(
        &groups(group("rack-1", None)),
        "spec.nodeGroups[0].instance",
        "txl, fra",
    );
    refused(
        &groups(group("fra", Some("txl"))),
        "spec.nodeGroups[0].name",
        "an instance's name",
    );
}

#[test]
fn leaving_out_an_instance_with_machines_is_warned_of() {
    let listed =
        json!({"settings": {"mode": "MultiInstance", "instances": [{"name": "a"}, {"name": "b"}]}});
    let left = json!({"settings": {"mode": "MultiInstance", "instances": [{"name": "a"}]}});
    let old = json!({
        "spec": cluster(listed),
        "status": {"instances": [{"name": "a", "machines": 1}, {"name": "b", "machines": 3}]},
    });
    let answer = ask(
        "ProxmoxCluster",
        Some(&old),
        &json!({"spec": cluster(left)}),
        false,
    );
    admitted(&answer);
    assert!(
        answer.warnings[0].contains("\"b\" is left out but has 3 machines"),
        "{:?}",
        answer.warnings
    );
}

fn machine(more: Value) -> Value {
    let mut spec = json!({"template": "ubuntu", "cores": 2, "memory": 4096});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn interfaces_are_numbered_without_a_gap() {
    let named = |names: &[&str]| {
        let devices: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        create(
            "ProxmoxMachine",
            machine(json!({"network": {"networkDevices": devices}})),
        )
    };
    let many: Vec<_> = (0..12).map(|number| format!("net{number}")).collect();
    admitted(&named(&many.iter().map(String::as_str).collect::<Vec<_>>()));
    refused(
        &named(&["net0", "net2"]),
        "spec.network.networkDevices",
        "there is no net1",
    );
    refused(
        &named(&["net1"]),
        "spec.network.networkDevices",
        "there is no net0",
    );
}

#[test]
fn what_a_guest_cannot_configure_is_refused() {
    let device = |device: Value| {
        create(
            "ProxmoxMachine",
            machine(json!({"network": {"networkDevices": [device]}})),
        )
    };
    let field = |name: &str| format!("spec.network.networkDevices[0].{name}");
    refused(
        &device(json!({"name": "net0", "mtu": 576})),
        &field("mtu"),
        "1280",
    );
    admitted(&device(json!({"name": "net0", "mtu": 1, "linkMtu": 9000})));
    refused(
        &device(json!({"name": "net0", "queues": 65})),
        &field("queues"),
        "64",
    );
    let rule = |rule: Value| json!({"name": "net0", "routingPolicy": [rule]});
    refused(
        &device(rule(json!({"from": "10.0.0.0/24"}))),
        &field("routingPolicy[0].table"),
        "which routing table",
    );
    refused(
        &device(rule(json!({"from": "all", "table": 7}))),
        &field("routingPolicy[0].from"),
        "set is6",
    );
    let route = |route: Value| json!({"name": "net0", "routes": [route]});
    refused(
        &device(route(json!({"to": "10.0.0.0/8", "via": "fe80::1"}))),
        &field("routes[0]"),
        "different families",
    );
    admitted(&device(route(json!({"to": "default", "via": "10.0.0.1"}))));
}

#[test]
fn one_interface_of_each_family_is_the_default() {
    let spec = machine(json!({"network": {"networkDevices": [
        {"name": "net0", "defaultIPv4": true, "defaultIPv6": true}, {"name": "net1", "defaultIPv4": true},
    ]}}));
    refused(
        &create("ProxmoxMachine", spec),
        "spec.network.networkDevices[1].defaultIPv4",
        "has it already",
    );
}

#[test]
fn routing_domains_are_made_of_declared_interfaces() {
    let vrfs = |vrfs: Value| {
        let devices = json!([{"name": "net0"}, {"name": "net1"}]);
        create(
            "ProxmoxMachine",
            machine(json!({"network": {"networkDevices": devices, "vrfs": vrfs}})),
        )
    };
    admitted(&vrfs(
        json!([{"name": "vrf-a", "table": 500, "interfaces": ["net1"]}]),
    ));
    refused(
        &vrfs(json!([{"name": "vrf-a", "table": 500, "interfaces": ["net7"]}])),
        "spec.network.vrfs[0].interfaces[0]",
        "not one of networkDevices",
    );
    let both = json!([
        {"name": "vrf-a", "table": 500, "interfaces": ["net1"]}, {"name": "vrf-b", "table": 501, "interfaces": ["net1"]},
    ]);
    refused(
        &vrfs(both),
        "spec.network.vrfs[1].interfaces[0]",
        "in another VRF",
    );
    let other = json!([{"name": "vrf-a", "table": 500, "routingPolicy": [{"from": "10.0.0.0/8", "table": 7}]}]);
    refused(
        &vrfs(other),
        "spec.network.vrfs[0].routingPolicy[0].table",
        "must be the VRF's own, 500",
    );
}

#[test]
fn amounts_and_tags_are_checked() {
    refused(
        &create("ProxmoxMachine", machine(json!({"memory": "lots"}))),
        "spec.memory",
        "40Gi",
    );
    refused(
        &create("ProxmoxMachine", machine(json!({"diskSize": 0}))),
        "spec.diskSize",
        "more than nothing",
    );
    admitted(&create(
        "ProxmoxMachine",
        machine(json!({"memory": "8Gi", "diskSize": "50"})),
    ));
    refused(
        &create("ProxmoxMachine", machine(json!({"tags": ["ok", "not ok"]}))),
        "spec.tags[1]",
        "not a tag",
    );
}

#[test]
fn a_machine_keeps_what_it_was_made_from_and_may_grow() {
    let begun = json!({"instance": "txl", "virtualMachineID": 101});
    let old = machine(begun.clone());
    let mut larger = machine(begun);
    larger["memory"] = json!(8192);
    admitted(&update("ProxmoxMachine", old.clone(), larger));
    for (field, value) in [
        ("instance", json!("fra")),
        ("template", json!("debian")),
        ("tags", json!(["new"])),
    ] {
        let mut new = old.clone();
        new[field] = value;
        refused(
            &update("ProxmoxMachine", old.clone(), new),
            &format!("spec.{field}"),
            "replace the Machine",
        );
    }
}

#[test]
fn what_the_controller_decides_may_change_until_the_guest_is_made() {
    let kind = "ProxmoxMachine";
    let decided = |vmid: u32| {
        machine(json!({"instance": "txl", "virtualMachineID": vmid, "providerID": "proxmox://u"}))
    };
    admitted(&update(kind, machine(json!({})), decided(101)));
    admitted(&update(kind, decided(101), decided(102)));
    let chosen = |name: &str| machine(json!({"instance": name}));
    admitted(&update(kind, chosen("txl"), chosen("fra")));
    let begun = |name: &str| machine(json!({"instance": name, "virtualMachineID": 101}));
    let moved = update(kind, begun("txl"), begun("fra"));
    refused(&moved, "spec.instance", "cannot be changed");
    let made = json!({"spec": decided(101), "status": {"initialization": {"provisioned": true}}});
    let changed = ask(kind, Some(&made), &json!({"spec": decided(102)}), false);
    refused(&changed, "spec.virtualMachineID", "cannot be changed");
}

#[test]
fn an_object_on_its_way_out_is_never_held_up() {
    let old = json!({"spec": machine(json!({}))});
    let mut new = json!({"spec": machine(json!({"template": "other", "memory": "lots"}))});
    new["metadata"] =
        json!({"name": "x", "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    admitted(&ask("ProxmoxMachine", Some(&old), &new, false));
}

fn template(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

#[test]
fn a_template_is_replaced_and_not_changed() {
    let kind = "ProxmoxMachineTemplate";
    let (old, new) = (
        template(machine(json!({}))),
        template(machine(json!({"cores": 8}))),
    );
    refused(
        &ask(kind, Some(&old), &new, false),
        "spec",
        "create another one",
    );
    refused(
        &ask(kind, Some(&old), &new, true),
        "spec",
        "create another one",
    );
    admitted(&ask(kind, Some(&old), &old, false));
}

#[test]
fn cluster_api_may_try_out_a_changed_template() {
    let kind = "ProxmoxMachineTemplate";
    let old = template(machine(
        json!({"disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 20}}}),
    ));
    let mut new = template(machine(
        json!({"disks": {"bootVolume": {"disk": "scsi0", "sizeGb": 40}}}),
    ));
    new["metadata"] =
        json!({"name": "x", "namespace": "default", "annotations": {TOPOLOGY_DRY_RUN: ""}});
    admitted(&ask(kind, Some(&old), &new, true));
    refused(
        &ask(kind, Some(&old), &new, false),
        "spec",
        "create another one",
    );
}

#[test]
fn a_template_is_nobody_in_particular_and_held_to_the_rules_of_machines() {
    let kind = "ProxmoxMachineTemplate";
    let one = template(machine(json!({
        "providerID": "proxmox://u", "virtualMachineID": 7,
        "network": {"networkDevices": [{"name": "net1", "mac": "bc:24:11:00:00:01"}]},
    })));
    let answer = ask(kind, None, &one, false);
    refused(&answer, "spec.template.spec.providerID", "leave it out");
    refused(
        &answer,
        "spec.template.spec.virtualMachineID",
        "leave it out",
    );
    refused(
        &answer,
        "spec.template.spec.network.networkDevices[0].mac",
        "all machines",
    );
    refused(
        &answer,
        "spec.template.spec.network.networkDevices",
        "there is no net0",
    );
}

#[test]
fn older_versions_are_judged_as_what_they_mean() {
    let machine = json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "ProxmoxMachine",
        "spec": {"numCores": 2, "memoryMiB": 2048, "network": {"networkDevices": [{"name": "net3", "bridge": "vmbr0"}]}},
    });
    refused(
        &ask("ProxmoxMachine", None, &machine, false),
        "spec.network.networkDevices",
        "no net0",
    );
}

#[test]
fn the_configuration_asks_about_the_hub_and_lets_the_rest_be_converted() {
    let made = configuration("oxmox", AdmissionClientConfig::default());
    let hooks = made.webhooks.unwrap();
    assert_eq!(hooks[0].match_policy.as_deref(), Some("Equivalent"));
    let rules = hooks[0].rules.as_ref().unwrap();
    assert_eq!(rules[0].resources.as_ref().unwrap().len(), 4);
}
