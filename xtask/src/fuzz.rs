//! Runs the fuzz target of the client's readers, guided by coverage.
//!
//! Coverage needs a nightly compiler (`rustup toolchain install nightly`) but no other tool: the flags
//! below are those that `cargo fuzz` would give. What was found interesting is kept as a corpus below
//! the target directory and used again; a text that breaks a reader is written to the current directory.

use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run::{root, run};

/// What makes the compiler count which code a text reaches.
const FLAGS: &[&str] = &[
    "--cfg",
    "fuzzing",
    "-Ccodegen-units=1",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Texts to begin with: one of each kind of property string.
const SEEDS: &[&str] = &[
    "local-lvm:vm-100-disk-0,size=32G,discard=on,iothread=1,ssd=1",
    "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=7,firewall=1",
    "ip=10.0.0.5/24,gw=10.0.0.1,ip6=auto",
    "enabled=1,fstrim_cloned_disks=1",
    "uuid=df3dab67-1173-4caa-b6f0-35d18e501214,serial=b3hN,base64=1",
    "host,flags=+aes;-pcid",
    "cpus=0-3;8,hostnodes=0,memory=2048,policy=bind",
    "order=scsi0;ide2;net0",
    "mapping=gpu,pcie=1,x-vga=1",
    "local:100/vm-100-disk-0.qcow2,mp=/data,size=8G",
    "name=eth0,bridge=vmbr0,ip=dhcp",
    "UPID:pve1:00003552:00024A78:6AFA0AEC:qmsnapshot:120:root@pam:",
    "Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist",
];

/// Builds the target and feeds it for `seconds`.
pub(crate) fn fuzz(seconds: u64) -> Result<()> {
    let own = root().join("crates/pve/fuzz");
    let target = own.join("target");
    let corpus = target.join("corpus");
    std::fs::create_dir_all(&corpus)
        .with_context(|| format!("cannot create {}", corpus.display()))?;
    for (number, seed) in SEEDS.iter().enumerate() {
        std::fs::write(corpus.join(format!("seed-{number}")), seed)
            .context("cannot write the corpus")?;
    }
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly", "cargo", "run", "--release"])
        // With a target, what runs while building is not counted.
        .args(["--target", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(own.join("Cargo.toml"))
        .args(["--bin", "property_strings", "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg("-max_len=200")
        .arg(&corpus)
        .env("RUSTFLAGS", FLAGS.join(" "))
        .env("CARGO_TARGET_DIR", &target);
    run(
        &mut command,
        &format!("fuzz property_strings for {seconds} s"),
    )
}
