//! The agent inside of a virtual machine.
//!
//! Every call to an agent that does not answer holds one of the server's few workers for three seconds, so callers
//! should ask seldom and give up early.

use serde::Deserialize;
use serde_json::Value;

use super::Qemu;
use crate::client::Call;
use crate::error::{Error, Result};
use crate::params::Params;
use crate::scalar;

#[derive(Deserialize)]
struct Wrapped<T> {
    result: T,
}

/// A network interface as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestInterface {
    /// Its name.
    pub name: String,
    /// Its hardware address, in lower case.
    #[serde(
        rename = "hardware-address",
        default,
        deserialize_with = "scalar::optional"
    )]
    pub mac: Option<String>,
    /// Its addresses.
    #[serde(rename = "ip-addresses", default)]
    pub addresses: Vec<GuestAddress>,
}

/// An address as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestAddress {
    /// The address; an IPv6 link-local one may carry `%eth0`.
    #[serde(rename = "ip-address")]
    pub address: String,
    /// `ipv4` or `ipv6`.
    #[serde(rename = "ip-address-type")]
    pub family: String,
    /// The length of the prefix.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub prefix: Option<u32>,
}

/// The guest's operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OsInfo {
    /// Such as `ubuntu`.
    #[serde(deserialize_with = "scalar::optional")]
    pub id: Option<String>,
    /// Such as `Ubuntu 24.04.1 LTS`.
    #[serde(rename = "pretty-name", deserialize_with = "scalar::optional")]
    pub pretty_name: Option<String>,
    /// Such as `24.04`.
    #[serde(rename = "version-id", deserialize_with = "scalar::optional")]
    pub version_id: Option<String>,
    /// The kernel.
    #[serde(rename = "kernel-release", deserialize_with = "scalar::optional")]
    pub kernel_release: Option<String>,
    /// Such as `x86_64`.
    #[serde(deserialize_with = "scalar::optional")]
    pub machine: Option<String>,
}

/// A file system as the guest sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct GuestFilesystem {
    /// Its device.
    pub name: String,
    /// Where it is mounted.
    #[serde(default)]
    pub mountpoint: String,
    /// Its type.
    #[serde(rename = "type", default)]
    pub kind: String,
    /// Its size in bytes.
    #[serde(rename = "total-bytes", default, deserialize_with = "scalar::optional")]
    pub total: Option<u64>,
    /// What is used of it.
    #[serde(rename = "used-bytes", default, deserialize_with = "scalar::optional")]
    pub used: Option<u64>,
}

/// How a command in the guest does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExecStatus {
    /// Whether it has ended.
    #[serde(deserialize_with = "scalar::flag")]
    pub exited: bool,
    /// Its exit code.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub exitcode: Option<i64>,
    /// The signal that ended it.
    #[serde(default, deserialize_with = "scalar::optional")]
    pub signal: Option<i64>,
    /// What it printed.
    #[serde(rename = "out-data", default, deserialize_with = "scalar::optional")]
    pub stdout: Option<String>,
    /// What it complained.
    #[serde(rename = "err-data", default, deserialize_with = "scalar::optional")]
    pub stderr: Option<String>,
}

#[derive(Deserialize)]
struct Started {
    #[serde(deserialize_with = "scalar::required")]
    pid: u64,
}

impl Qemu {
    /// Whether the agent answers.
    pub async fn agent_ping(&self) -> Result<bool> {
        let call = Call::post("qemu.agent.ping", self.path("/agent/ping"));
        match self.client.call::<Value>(call).await {
            Ok(_) => Ok(true),
            Err(
                Error::AgentAbsent {
                    configured: true, ..
                }
                | Error::NotRunning { .. },
            ) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The guest's network interfaces.
    pub async fn agent_interfaces(&self) -> Result<Vec<GuestInterface>> {
        self.agent_get("qemu.agent.interfaces", "network-get-interfaces")
            .await
    }

    /// The guest's operating system.
    pub async fn agent_osinfo(&self) -> Result<OsInfo> {
        self.agent_get("qemu.agent.osinfo", "get-osinfo").await
    }

    /// The guest's own name.
    pub async fn agent_hostname(&self) -> Result<String> {
        #[derive(Deserialize)]
        struct HostName {
            #[serde(rename = "host-name")]
            name: String,
        }
        Ok(self
            .agent_get::<HostName>("qemu.agent.hostname", "get-host-name")
            .await?
            .name)
    }

    /// The guest's file systems.
    pub async fn agent_filesystems(&self) -> Result<Vec<GuestFilesystem>> {
        self.agent_get("qemu.agent.fsinfo", "get-fsinfo").await
    }

    /// Asks the guest's file systems to give unused space back.
    pub async fn agent_fstrim(&self) -> Result<()> {
        self.agent_post("qemu.agent.fstrim", "fstrim").await
    }

    /// Holds the guest's file systems still.
    pub async fn agent_freeze(&self) -> Result<()> {
        self.agent_post("qemu.agent.freeze", "fsfreeze-freeze")
            .await
    }

    /// Lets the guest's file systems go on.
    pub async fn agent_thaw(&self) -> Result<()> {
        self.agent_post("qemu.agent.thaw", "fsfreeze-thaw").await
    }

    /// Starts a command in the guest and returns its process id.
    pub async fn agent_exec(&self, command: &[&str], input: Option<&str>) -> Result<u64> {
        let mut params = Params::new();
        for part in command {
            params.push("command", part);
        }
        let params = params.maybe("input-data", input);
        let call = Call::post("qemu.agent.exec", self.path("/agent/exec")).params(params);
        Ok(self.client.call::<Started>(call).await?.pid)
    }

    /// How a command in the guest does. Its output is handed out once.
    pub async fn agent_exec_status(&self, pid: u64) -> Result<ExecStatus> {
        let params = Params::new().with("pid", pid);
        self.client
            .call(
                Call::get("qemu.agent.exec_status", self.path("/agent/exec-status")).params(params),
            )
            .await
    }

    /// Reads a file in the guest.
    pub async fn agent_read_file(&self, path: &str) -> Result<String> {
        #[derive(Deserialize)]
        struct Content {
            content: String,
        }
        let params = Params::new().with("file", path);
        let call = Call::get("qemu.agent.file_read", self.path("/agent/file-read")).params(params);
        Ok(self.client.call::<Content>(call).await?.content)
    }

    /// Writes a file in the guest.
    pub async fn agent_write_file(&self, path: &str, content: &str) -> Result<()> {
        let params = Params::new().with("file", path).with("content", content);
        let call =
            Call::post("qemu.agent.file_write", self.path("/agent/file-write")).params(params);
        self.client.call(call).await
    }

    /// Sets a user's password in the guest.
    pub async fn agent_set_password(&self, user: &str, password: &str) -> Result<()> {
        let params = Params::new()
            .with("username", user)
            .with("password", password);
        let call =
            Call::post("qemu.agent.password", self.path("/agent/set-user-password")).params(params);
        self.client.call::<Value>(call).await.map(drop)
    }

    async fn agent_get<T: serde::de::DeserializeOwned>(
        &self,
        name: &'static str,
        command: &str,
    ) -> Result<T> {
        let call = Call::get(name, self.path(&format!("/agent/{command}")));
        Ok(self.client.call::<Wrapped<T>>(call).await?.result)
    }

    async fn agent_post(&self, name: &'static str, command: &str) -> Result<()> {
        let call = Call::post(name, self.path(&format!("/agent/{command}")));
        self.client.call::<Value>(call).await.map(drop)
    }
}
