//! Measures the simulator: simple calls per second over HTTPS, the list of resources with 10,000
//! guests, and memory. Run with `cargo run --release -p pve-sim --example throughput`.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]
#![expect(
    clippy::unwrap_used,
    reason = "a measurement that cannot be made ends here"
)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use pve_sim::{Server, Simulator, Tls, WorldFile};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const GUESTS: u32 = 10_000;
const CONNECTIONS: usize = 16;
const SPAN: Duration = Duration::from_secs(5);
const TOKEN: &str = "bench@pve!t1=11111111-2222-3333-4444-555555555555";

fn world() -> WorldFile {
    let mut yaml = "clusters:\n  - name: big\n    users: [{ id: bench@pve, tokens: [{ id: t1, secret: \
                    11111111-2222-3333-4444-555555555555, privsep: false }] }]\n    acl: [{ path: /, \
                    user: bench@pve, role: Administrator }]\n    guests:\n"
        .to_owned();
    for number in 0..GUESTS {
        let (vmid, node) = (number + 100, number % 3 + 1);
        let _ = writeln!(
            yaml,
            "      - {{ vmid: {vmid}, node: pve{node}, storage: ceph, disk-gib: 20, image: talos, running: true, options: \
             {{ name: worker-{vmid}, cores: \"4\", memory: \"8192\", agent: \"1\", tags: k8s;pool-a, net0: \"virtio,bridge=vmbr0\" }} }}"
        );
    }
    WorldFile::parse(&yaml).unwrap()
}

/// Resident memory in MiB.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    pages * 4096 / (1 << 20)
}

struct Connection(BufReader<TlsStream<TcpStream>>);

impl Connection {
    async fn open(port: u16, config: Arc<ClientConfig>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        Self(BufReader::new(
            TlsConnector::from(config)
                .connect(name, stream)
                .await
                .unwrap(),
        ))
    }

    /// Makes one call; returns the length of the body.
    async fn get(&mut self, path: &str) -> usize {
        let request = format!(
            "GET /api2/json{path} HTTP/1.1\r\nHost: x\r\nAuthorization: PVEAPIToken={TOKEN}\r\n\r\n"
        );
        self.0.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.unwrap());
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let length = head
            .split("content-length: ")
            .nth(1)
            .unwrap()
            .split('\r')
            .next()
            .unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.0.read_exact(&mut body).await.unwrap();
        body.len()
    }
}

async fn measure(port: u16, config: Arc<ClientConfig>) {
    for path in [
        "/version",
        "/nodes/pve1/qemu/100/config",
        "/nodes/pve1/qemu/100/status/current",
    ] {
        let until = Instant::now() + SPAN;
        let clients = (0..CONNECTIONS).map(|_| {
            let config = Arc::clone(&config);
            async move {
                let mut connection = Connection::open(port, config).await;
                let mut count = 0_u64;
                while Instant::now() < until {
                    connection.get(path).await;
                    count += 1;
                }
                count
            }
        });
        let total: u64 = futures::future::join_all(clients).await.into_iter().sum();
        println!("{:>8} calls/s  GET {path}", total / SPAN.as_secs());
    }
    let mut connection = Connection::open(port, config).await;
    let mut times = Vec::new();
    let mut size = 0;
    for _ in 0..20 {
        let start = Instant::now();
        size = connection.get("/cluster/resources").await;
        times.push(start.elapsed());
    }
    times.sort();
    println!(
        "{:>8.1} ms (median; slowest {:.1})  GET /cluster/resources, {GUESTS} guests, {} KiB",
        times[times.len() / 2].as_secs_f64() * 1000.0,
        times[times.len() - 1].as_secs_f64() * 1000.0,
        size / 1024
    );
}

fn main() {
    let before = memory();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let simulator = Simulator::builder().world(world()).build();
    let tls = Tls::self_signed(&["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(tls.certificate().to_vec()))
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let cluster = simulator.clusters().next().unwrap().clone();
    let start = Server::start(
        cluster.endpoint("pve1"),
        "127.0.0.1:0".parse().unwrap(),
        Some(tls),
    );
    let server = runtime.block_on(start).unwrap();
    let port = server.address().port();
    println!(
        "{:>8} MiB for {GUESTS} guests",
        memory().saturating_sub(before)
    );
    // The simulator has one core, its clients have the other.
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(measure(port, Arc::new(config)));
    });
    runtime.block_on(async {
        while !client.is_finished() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    client.join().unwrap();
    println!("{:>8} MiB at the end, clients included", memory());
}
