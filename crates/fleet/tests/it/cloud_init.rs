//! What real cloud-init makes of our first-boot images.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use fleet::{
    ClusterName, GuestIntent, Identity, NodeName, Owner, Vmid,
    cloudinit::SeedFiles,
    intent::{Init, Nic, Source},
    record::NicIdentity,
};
use serde_json::{Value, json};
use testbed::assets_or_skip;
use uuid::Uuid;

fn guest(nics: Vec<Nic>) -> (GuestIntent, Identity) {
    let cluster = ClusterName::new("one").unwrap();
    let owner = Owner::new("VirtualMachine/default/web/1").unwrap();
    let mut intent = GuestIntent::new(owner, cluster.clone(), "web", Source::Empty);
    let known = (0_u8..)
        .zip(&nics)
        .map(|(index, nic)| {
            let mac = fleet::intent::Mac::proxmox([0, 0, index]);
            (nic.name.clone(), NicIdentity { index, mac })
        })
        .collect();
    intent.nics = nics;
    let identity = Identity {
        cluster,
        node: NodeName::new("pve1").unwrap(),
        vmid: Vmid::new(100).unwrap(),
        uuid: Uuid::from_u128(7),
        nics: known,
        disks: BTreeMap::new(),
        mounts: std::collections::BTreeMap::new(),
        brought: std::collections::BTreeSet::new(),
        origin: None,
        adopted: false,
    };
    (intent, identity)
}

fn nic(name: &str) -> Nic {
    Nic {
        name: name.to_owned(),
        bridge: "vmbr0".to_owned(),
        ..Nic::default()
    }
}

fn fixed(name: &str, address: &str, gateway: Option<&str>) -> Nic {
    let mut nic = nic(name);
    nic.addressing.addresses = vec![address.parse().unwrap()];
    nic.addressing.gateway4 = gateway.map(|text| text.parse().unwrap());
    nic
}

/// cloud-init's Python, unless it was not unpacked.
fn python() -> Option<PathBuf> {
    let assets = assets_or_skip("cloud_init", &["cloud-init-python"])?;
    Some(assets.program("cloud-init-python").unwrap())
}

fn read(python: &Path, files: &SeedFiles) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("seed.iso");
    std::fs::write(&image, files.image().unwrap()).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/read_seed.py");
    let output = Command::new(python)
        .arg(script)
        .arg(&image)
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// What `cloud-init schema` says about a file.
fn schema(python: &Path, text: &str) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(python)
        .args(["-m", "cloudinit.cmd.main", "schema", "--config-file"])
        .arg(&file)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn cloud_init_reads_everything_from_our_image() {
    let Some(python) = python() else { return };
    let (intent, identity) = guest(vec![
        fixed("lan", "192.168.1.100/24", Some("192.168.1.1")),
        nic("dmz"),
    ]);
    let user = "#cloud-config\nhostname: web-server\npackages: [nginx]\n";
    let init = Init {
        user_data: Some(user.into()),
        user: Some("ubuntu".into()),
        password: Some("se:cret #1".into()),
        ssh_keys: vec!["ssh-ed25519 AAAA someone@somewhere".into()],
        dns: vec!["8.8.8.8".parse().unwrap()],
        ..Init::default()
    };
    let files = SeedFiles::render(&intent, &init, &identity).unwrap();
    let read = read(&python, &files);
    assert_eq!(read["label"], "cidata");
    let names = json!(["meta-data", "network-config", "user-data", "vendor-data"]);
    assert_eq!((&read["rock_ridge"], &read["joliet"]), (&names, &names));
    assert_eq!(read["found"], true);
    assert_eq!(read["instance_id"], identity.uuid.to_string());
    assert_eq!(read["hostname"], "web");
    assert_eq!(read["user_data"], user);
    let interfaces = read["interfaces"].as_array().unwrap();
    assert_eq!(interfaces.len(), 2);
    let lan = &interfaces[0];
    assert_eq!(
        lan["mac"].as_str().unwrap().to_uppercase(),
        "BC:24:11:00:00:00"
    );
    let subnets = lan["subnets"].to_string();
    for part in ["192.168.1.100", "192.168.1.1", "8.8.8.8"] {
        assert!(subnets.contains(part), "{part} is not in {subnets}");
    }
    assert!(
        interfaces[1]["subnets"].to_string().contains("dhcp"),
        "{interfaces:?}"
    );
}

#[test]
fn cloud_init_finds_no_network_configuration_where_no_interface_is_declared() {
    let Some(python) = python() else { return };
    let (intent, identity) = guest(vec![]);
    let files = SeedFiles::render(&intent, &Init::default(), &identity).unwrap();
    let read = read(&python, &files);
    assert_eq!(read["found"], true);
    assert_eq!(read["rock_ridge"], json!(["meta-data", "user-data"]));
    assert_eq!(read["interfaces"], Value::Null);
}

#[test]
fn what_we_render_passes_cloud_inits_own_schema() {
    let Some(python) = python() else { return };
    assert!(
        schema(&python, "#cloud-config\nhostname: [wrong]\n").is_err(),
        "it does check"
    );
    let (intent, identity) = guest(vec![]);
    let init = Init {
        user: Some("ubuntu".into()),
        password: Some("se:cret #1\n".into()),
        ssh_keys: vec!["ssh-ed25519 AAAA a".into(), "ssh-rsa BBBB b".into()],
        ..Init::default()
    };
    let files = SeedFiles::render(&intent, &init, &identity).unwrap();
    schema(&python, files.user_data.as_text().unwrap()).unwrap();
    let empty = SeedFiles::render(&intent, &Init::default(), &identity).unwrap();
    schema(&python, empty.user_data.as_text().unwrap()).unwrap();
}
