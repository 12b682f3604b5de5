//! What PVE refuses, in its own words: calls that change nothing, side by side.

use http::Method;
use serde_json::{Value, json};

use crate::client::{Client, pve9};

/// A call, and what the answer says: the errors by parameter, or else the message.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Value);

async fn each(pve: &Client, method: Method, path: &str, cases: &[Case<'_>]) {
    for (rest, params, wanted) in cases {
        let path = format!("{path}{rest}");
        let answer = pve.call(method.clone(), &path, params).await;
        let said = if answer.body["errors"].is_object() {
            answer.body["errors"].clone()
        } else {
            json!(answer.body["message"].as_str().map(str::trim_end))
        };
        assert_eq!(said, *wanted, "{method} {path} {params:?}");
        let status = if wanted.is_object() { 400 } else { 500 };
        assert_eq!(answer.status, status, "{method} {path} {params:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_is_made_of_what_fits_its_options() {
    let (_, pve) = pve9().await;
    let id = ("vmid", "700");
    each(
        &pve,
        Method::POST,
        "/nodes/pve1/qemu",
        &[
            (
                "",
                &[id, ("scsi0", "data:1,import-from=local:import/a.qcow2")],
                json!({ "scsi0": "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>" }),
            ),
            (
                "",
                &[id, ("efidisk0", "data:0,import-from=local:import/a.raw")],
                json!({ "efidisk0": "need to specify 'efitype' when using 'import-from'" }),
            ),
            (
                "",
                &[id, ("ide2", "local:vztmpl/a.tar.zst,media=cdrom")],
                json!({ "ide2": "content type needs to be 'images' or 'iso'" }),
            ),
            (
                "",
                &[id, ("archive", "local:backup/a.vma"), ("scsi0", "data:1")],
                json!({ "scsi0": "option conflicts with option 'archive'" }),
            ),
            (
                "",
                &[id, ("archive", "-")],
                json!("pipe requires cli environment"),
            ),
            (
                "",
                &[id, ("cicustom", "user=local:iso/a.iso")],
                json!("unable to use volume local:iso/a.iso - content type needs to be 'snippets'"),
            ),
            (
                "",
                &[id, ("unused0", "data:1")],
                json!("unable to parse directory volume name '1'"),
            ),
            (
                "",
                &[id, ("cpu", "custom-own")],
                json!({ "cpu": "invalid format - Custom cputype 'own' not found\n" }),
            ),
            (
                "",
                &[id, ("agent", "fstrim_cloned_disks=1")],
                json!({ "agent": "invalid format - format error\nagent.enabled: property is missing and it is not optional\n" }),
            ),
        ],
    )
    .await;
    let twice = [id, ("ide0", "data:cloudinit"), ("ide2", "data:cloudinit")];
    let task = pve.run(Method::POST, "/nodes/pve1/qemu", &twice).await;
    let text = "unable to create VM 700 - ide2 - cloud-init drive is already attached at 'ide0'";
    assert_eq!(task.exit, text);
}

#[tokio::test(start_paused = true)]
async fn changes_of_a_vm_must_agree_with_each_other() {
    let (_, pve) = pve9().await;
    let disk = ("scsi0", "data:1,format=qcow2");
    pve.create(
        700,
        &[disk, ("ide2", "none,media=cdrom"), ("protection", "1")],
    )
    .await;
    each(
        &pve,
        Method::PUT,
        "/nodes/pve1/qemu/700/config",
        &[
            (
                "",
                &[("revert", "name"), ("name", "a")],
                json!({ "delete": "you can't use '-name' and -revert name' at the same time" }),
            ),
            (
                "",
                &[("revert", "name"), ("delete", "name")],
                json!({ "revert": "you can't use '-delete name' and -revert name' at the same time" }),
            ),
            (
                "",
                &[("force", "1")],
                json!({ "delete": "missing property required by 'force'" }),
            ),
            (
                "",
                &[("delete", "scsi0")],
                json!("can't remove drive 'scsi0' - protection mode enabled"),
            ),
            (
                "",
                &[("scsi1", "data:700/vm-700-disk-0.qcow2,format=raw")],
                json!(
                    "drive 'scsi1' - volume 'data:700/vm-700-disk-0.qcow2' - 'format=raw' option different from storage format 'qcow2'"
                ),
            ),
        ],
    )
    .await;
    let config = "/nodes/pve1/qemu/700/config";
    pve.put(config, &[("protection", "0"), ("ide0", "none,media=cdrom")])
        .await;
    assert_eq!(pve.config(700).await["boot"], "order=scsi0;ide2;ide0");
    pve.put(config, &[("delete", "cdrom")]).await;
    assert_eq!(pve.config(700).await.get("ide2"), None);
    let both = [("snapshot", "one"), ("current", "1")];
    let answer = pve.try_query(config, &both).await;
    let text = "cannot use 'snapshot' parameter with 'current'";
    assert_eq!(answer.body["errors"]["snapshot"], text);
}

#[tokio::test(start_paused = true)]
async fn a_disk_goes_only_where_disks_belong() {
    let (_, pve) = pve9().await;
    pve.create(700, &[("scsi0", "data:1"), ("ide2", "none,media=cdrom")])
        .await;
    pve.create(701, &[("scsi0", "data:1")]).await;
    let disk = ("disk", "scsi0");
    each(
        &pve,
        Method::POST,
        "/nodes/pve1/qemu/700",
        &[
            (
                "/move_disk",
                &[disk, ("storage", "local")],
                json!({ "storage": "storage 'local' does not support vm images" }),
            ),
            (
                "/move_disk",
                &[("disk", "ide2"), ("storage", "data")],
                json!("you can't move a cdrom"),
            ),
            (
                "/move_disk",
                &[disk, ("storage", "tank"), ("digest", "00")],
                json!("detected modified configuration - file changed by other user? Try again."),
            ),
            (
                "/move_disk",
                &[disk, ("target-vmid", "700")],
                json!({ "target-vmid": "must be different than source VMID to reassign disk" }),
            ),
            (
                "/move_disk",
                &[disk, ("target-vmid", "799")],
                json!("could not find target VM 799"),
            ),
            (
                "/move_disk",
                &[disk, ("target-vmid", "701")],
                json!("Target disk key 'scsi0' is already in use for VM '701'"),
            ),
            (
                "/move_disk",
                &[disk, ("target-vmid", "9000")],
                json!("Can't move disks from or to template VMs"),
            ),
            (
                "/clone",
                &[("newid", "702"), ("full", "1"), ("storage", "local")],
                json!({ "storage": "storage 'local' does not support vm images" }),
            ),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_has_the_options_of_its_type() {
    let (_, pve) = pve9().await;
    let dir = ("type", "dir");
    let one = ("storage", "one");
    each(
        &pve,
        Method::POST,
        "/storage",
        &[
            (
                "",
                &[one, dir],
                json!("missing value for required option 'path'"),
            ),
            (
                "",
                &[one, ("type", "lvm"), ("vgname", "vg"), ("path", "/x")],
                json!("unexpected property 'path'"),
            ),
            (
                "",
                &[one, dir, ("path", "/x"), ("content", "images,none")],
                json!("unable to combine 'none' with other content types"),
            ),
        ],
    )
    .await;
    let failed = |text: &str| json!(format!("update storage failed: {text}"));
    each(
        &pve,
        Method::PUT,
        "/storage",
        &[
            (
                "/none",
                &[("disable", "1")],
                failed("storage 'none' does not exist"),
            ),
            (
                "/data",
                &[("delete", "path")],
                failed("unable to delete required option 'path'"),
            ),
            (
                "/data",
                &[("delete", "krbd")],
                failed("no such option 'krbd'"),
            ),
            (
                "/data",
                &[("digest", "00"), ("content", "iso")],
                failed("detected modified configuration - file changed by other user? Try again."),
            ),
        ],
    )
    .await;
    let vmid = ("vmid", "700");
    let name = |name: &'static str| [vmid, ("filename", name), ("size", "1M")];
    each(
        &pve,
        Method::POST,
        "/nodes/pve1/storage/data/content",
        &[
            (
                "",
                &name("vm-700-disk-0"),
                json!("unable to parse volume filename 'vm-700-disk-0'"),
            ),
            (
                "",
                &name("../a.raw"),
                json!("unable to parse volume filename '../a.raw'"),
            ),
        ],
    )
    .await;
    each(
        &pve,
        Method::GET,
        "/nodes/pve1/storage/data/content",
        &[(
            "/local:iso/a.iso",
            &[],
            json!({ "volume": "storage ID mismatch (local != data)\n" }),
        )],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_is_of_one_selection() {
    let (_, pve) = pve9().await;
    let dump = "/nodes/pve1/vzdump";
    let vmid = ("vmid", "100");
    each(
        &pve,
        Method::POST,
        dump,
        &[
            (
                "",
                &[vmid, ("all", "1")],
                json!({ "all": "option conflicts with option 'vmid'" }),
            ),
            (
                "",
                &[vmid, ("exclude", "101")],
                json!({ "exclude": "option conflicts with option 'vmid'" }),
            ),
            ("", &[], json!({ "vmid": "property is missing" })),
        ],
    )
    .await;
    // The guest is on another node, so there is nothing to do on this one.
    let elsewhere = pve.data(Method::POST, dump, &[vmid]).await;
    assert_eq!(elsewhere, "OK");
    pve.create(700, &[]).await;
    let here = [("vmid", "700"), ("storage", "data")];
    let task = pve.run(Method::POST, dump, &here).await;
    let text = "could not get storage information for 'data': can't use storage 'data' for backups - wrong content type";
    assert_eq!(task.exit, text);
}

#[tokio::test(start_paused = true)]
async fn features_nobody_set_up_are_empty_or_say_what_is_missing() {
    let (_, pve) = pve9().await;
    for path in [
        "/nodes/pve1/ceph/status",
        "/nodes/pve1/ceph/osd",
        "/cluster/ceph/status",
    ] {
        let (status, text) = pve.refused(Method::GET, path, &[]).await;
        let missing = "binary not installed: /usr/bin/ceph-mon";
        assert_eq!((status, text.as_str()), (500, missing), "{path}");
    }
    let wrong = [("timeout", "1"), ("service-type", "osd")];
    let answer = pve.try_post("/cluster/ceph/restart-bulk", &wrong).await;
    let text = "value must have a minimum value of 30";
    assert_eq!(answer.body["errors"]["timeout"], text);
    for path in [
        "/cluster/acme/account",
        "/cluster/jobs/realm-sync",
        "/cluster/notifications/endpoints/smtp",
        "/cluster/qemu/custom-cpu-models",
        "/cluster/sdn/fabrics/fabric",
    ] {
        assert_eq!(pve.get(path).await, json!([]), "{path}");
    }
    let targets = pve.get("/cluster/notifications/targets").await;
    assert_eq!(targets[0]["name"], "mail-to-root");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_mapped_nowhere_does_not_start() {
    let (_, pve) = pve9().await;
    pve.create(700, &[("hostpci0", "mapping=gpu")]).await;
    let start = "/nodes/pve1/qemu/700/status/start";
    let task = pve.run(Method::POST, start, &[]).await;
    assert_eq!(task.exit, "PCI device mapping not found for 'gpu'");
}

#[tokio::test(start_paused = true)]
async fn a_firewall_rule_is_checked_as_a_whole() {
    let (_, pve) = pve9().await;
    let firewall = "/cluster/firewall";
    let group = format!("{firewall}/groups");
    pve.data(Method::POST, &group, &[("group", "web")]).await;
    let alias = [("name", "Office"), ("cidr", "fe80::1")];
    let aliases = format!("{firewall}/aliases");
    pve.data(Method::POST, &aliases, &alias).await;
    let rule = [("type", "in"), ("action", "ACCEPT")];
    let with = |more: &[(&'static str, &'static str)]| [&rule[..], more].concat();
    let sport = "missing property - 'sport' requires this property";
    each(
        &pve,
        Method::POST,
        firewall,
        &[
            (
                "/groups/web",
                &[("type", "group"), ("action", "other")],
                json!({ "type": "security groups not allowed" }),
            ),
            (
                "/groups/web",
                &with(&[("iface", "net0")]),
                json!({ "type": "parameter -i not allowed for this rule type" }),
            ),
            (
                "/groups/web",
                &with(&[("sport", "22")]),
                json!({ "proto": sport }),
            ),
            (
                "/groups/web",
                &with(&[("source", "nobody")]),
                json!({ "source": "no such alias 'nobody'" }),
            ),
            (
                "/groups/web",
                &with(&[("source", "10.0.0.1"), ("dest", "office")]),
                json!({ "dest": "detected mixed ipv4/ipv6 addresses in rule" }),
            ),
            (
                "/aliases",
                &[("name", "OFFICE"), ("cidr", "10.0.0.1")],
                json!({ "name": "alias 'OFFICE' already exists" }),
            ),
            (
                "/groups",
                &[("group", "new"), ("rename", "old")],
                json!({ "group": "Security group 'old' does not exist" }),
            ),
        ],
    )
    .await;
    each(
        &pve,
        Method::DELETE,
        firewall,
        &[
            ("/groups/none", &[], json!("no such security group 'none'")),
            ("/ipset/none", &[], json!("no such IPSet 'none'")),
        ],
    )
    .await;
    let options = [("delete", "colour")];
    let wanted = json!({ "delete": "no such option 'colour'" });
    let case = [("/options", &options[..], wanted)];
    each(&pve, Method::PUT, firewall, &case).await;
    let source = with(&[("source", "OFFICE")]);
    let rules = format!("{firewall}/groups/web");
    pve.data(Method::POST, &rules, &source).await;
    assert_eq!(pve.get(&rules).await[0]["ipversion"], 6);
}

#[tokio::test(start_paused = true)]
async fn a_pool_counts_each_storage_once_and_forgets_what_is_gone() {
    let (_, pve) = pve9().await;
    pve.data(Method::POST, "/pools", &[("poolid", "one")]).await;
    let members = [("poolid", "one"), ("storage", "data"), ("vms", "4711")];
    pve.put("/pools", &members).await;
    let found = pve.get("/pools/one").await;
    let found = found["members"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["node"], "pve1");
    let gone = [("poolid", "one"), ("storage", "data"), ("delete", "1")];
    pve.put("/pools", &gone).await;
    pve.data(Method::DELETE, "/pools/one", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_high_availability_must_be_one_that_can_hold() {
    let (_, pve) = pve9().await;
    let sid = ("sid", "vm:100");
    pve.data(Method::POST, "/cluster/ha/resources", &[sid])
        .await;
    let (rule, vm) = (("rule", "one"), ("resources", "vm:100"));
    let near = ("type", "node-affinity");
    each(
        &pve,
        Method::POST,
        "/cluster/ha/rules",
        &[
            (
                "",
                &[rule, near, vm, ("nodes", "pve9")],
                json!("create ha rule failed: cannot use non-existant node(s) pve9."),
            ),
            (
                "",
                &[
                    rule,
                    ("type", "resource-affinity"),
                    ("affinity", "positive"),
                    vm,
                ],
                json!(
                    "create ha rule failed: 400 Rule 'one' is invalid.\nresources: rule is ineffective as there are less than two resources"
                ),
            ),
        ],
    )
    .await;
    each(
        &pve,
        Method::PUT,
        "/cluster/ha",
        &[
            (
                "/rules/none",
                &[near, ("strict", "1"), ("nodes", "pve1")],
                json!("update HA rules failed: HA rule 'none' does not exist"),
            ),
            (
                "/resources/vm:4711",
                &[("state", "stopped")],
                json!("update resource failed: no such resource 'vm:4711'"),
            ),
            (
                "/resources/vm:100",
                &[("delete", "colour")],
                json!("update resource failed: no such option 'colour'"),
            ),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_where_containers_belong_and_stays_what_it_is() {
    let (_, pve) = pve9().await;
    let template = "local:vztmpl/debian-12-standard_12.7-1_amd64.tar.zst";
    let (id, from) = (("vmid", "700"), ("ostemplate", template));
    each(
        &pve,
        Method::POST,
        "/nodes/pve1/lxc",
        &[
            (
                "",
                &[id, from],
                json!({ "storage": "storage 'local' does not support container directories" }),
            ),
            (
                "",
                &[id, ("ostemplate", "local:iso/a.iso")],
                json!("unable to use volume local:iso/a.iso - content type needs to be 'vztmpl'"),
            ),
            (
                "",
                &[id, from, ("ssh-public-keys", "nonsense")],
                json!("SSH public key validation error"),
            ),
        ],
    )
    .await;
    let made = [id, from, ("rootfs", "data:1")];
    let task = pve.run(Method::POST, "/nodes/pve1/lxc", &made).await;
    assert_eq!(task.exit, "OK");
    each(
        &pve,
        Method::PUT,
        "/nodes/pve1/lxc/700/config",
        &[
            (
                "",
                &[("unprivileged", "0")],
                json!("unable to modify read-only option: 'unprivileged'"),
            ),
            (
                "",
                &[("delete", "rootfs")],
                json!("unable to delete required option 'rootfs'"),
            ),
            (
                "",
                &[("delete", "hostname"), ("hostname", "a")],
                json!({ "delete": "you can't use '-hostname' and -delete hostname' at the same time" }),
            ),
            (
                "",
                &[("mp0", "local:1,mp=/data")],
                json!("storage 'local' does not allow content type 'rootdir' (Container)"),
            ),
        ],
    )
    .await;
}
