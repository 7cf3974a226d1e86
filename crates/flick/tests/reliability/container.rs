//! A service in a container: a cgroup with a limit on memory that the kernel enforces.
//! Promises: runs as root only, and says what is missing where it cannot; a test that made no cgroup fails.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::client::connect;
use crate::common::http::{self, Backend};
use crate::common::service::Service;
use crate::common::{self, wait};
use crate::{machine, wire};

const MIB: u64 = 1 << 20;
const CONTAINER_BYTES: u64 = 128 * MIB;
const READERS: usize = 400;
/// Less than the 30 s after which clients that do not read are dropped, and more than a busy machine needs.
const LONGEST_MAX: Duration = Duration::from_secs(15);

/// Files of a cgroup, by its version.
struct CgroupFiles {
    limit: &'static str,
    peak: &'static str,
    /// Has a line `oom_kill`, with the number of killed processes.
    kills: &'static str,
}

const VERSION_1: CgroupFiles = CgroupFiles {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    kills: "memory.oom_control",
};
const VERSION_2: CgroupFiles =
    CgroupFiles { limit: "memory.max", peak: "memory.peak", kills: "memory.events" };

/// A cgroup with a limit on memory, removed when dropped.
struct Cgroup {
    directory: PathBuf,
    files: CgroupFiles,
}

impl Cgroup {
    fn new(limit_bytes: u64) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test needs root, which alone may make cgroups and set their limits"
        );
        let (mount, files) = memory_cgroups();
        let directory = mount.join(format!("flick-test-{}", std::process::id()));
        let cannot = |what: &Path, error| {
            panic!(
                "this test needs a cgroup with a limit on memory; cannot write {}: {error}",
                what.display()
            )
        };
        std::fs::create_dir(&directory).unwrap_or_else(|error| cannot(&directory, error));
        let cgroup = Self { directory, files };
        let limit = cgroup.directory.join(cgroup.files.limit);
        std::fs::write(&limit, limit_bytes.to_string()).unwrap_or_else(|error| cannot(&limit, error));
        cgroup
    }

    /// The command, which joins this cgroup before its program starts.
    fn enters(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(self.directory.join("cgroup.procs"));
        inside.arg(command.get_program()).args(command.get_args()).current_dir(common::root());
        inside.stdin(Stdio::null()).env_remove("FLICK_LOG").env("NO_COLOR", "1");
        inside
    }

    fn read(&self, file: &str) -> String {
        let path = self.directory.join(file);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Most memory that its processes have used.
    fn peak_bytes(&self) -> u64 {
        self.read(self.files.peak).trim().parse().expect("a number of bytes")
    }

    /// Processes that the kernel has killed because of the limit.
    fn kills(&self) -> u64 {
        let text = self.read(self.files.kills);
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).expect("the kernel counts them")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel keeps it until the last process in it is gone.
        wait::within(wait::WAIT_MAX, || std::fs::remove_dir(&self.directory).ok());
    }
}

/// Mount point of the cgroups with limits on memory, of version 1 or 2.
fn memory_cgroups() -> (PathBuf, CgroupFiles) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("Linux lists mounts");
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((PathBuf::from(fields.next()?), fields.next()?, fields.next()?))
    });
    for (mount, kind, options) in mounts {
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            return (mount, VERSION_1);
        }
        let controllers = std::fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
        if kind == "cgroup2" && controllers.split_whitespace().any(|name| name == "memory") {
            let control = mount.join("cgroup.subtree_control");
            std::fs::write(&control, "+memory").unwrap_or_else(|error| {
                panic!("this test needs the memory controller; cannot write {}: {error}", control.display())
            });
            return (mount, VERSION_2);
        }
    }
    panic!(
        "this test needs cgroups with the memory controller, and none are mounted (see /proc/self/mounts)"
    );
}

/// 5 MB for `/large`, and little for everything else.
fn page(target: &str, size: usize) -> Vec<u8> {
    vec![b'x'; if target == "/large" { 5_000_000 } else { size }]
}

/// Whether an honest client gets what it asks for; the service may refuse it otherwise, but not leave it alone.
fn is_served(service: SocketAddr) -> bool {
    match http::exchange(&mut connect(service), "/small") {
        Ok((200, body)) => body.len() == 5,
        Ok((503, _)) => false,
        other => panic!("neither served nor refused: {other:?}"),
    }
}

/// The kernel killed the service within a second.
#[test]
fn clients_that_do_not_read_had_a_container_of_128_mib_killed() {
    ["epoll", "uring"].into_iter().for_each(hold_off_readers_in_a_container);
}

fn hold_off_readers_in_a_container(io: &str) {
    let _machine = machine::alone();
    let cgroup = Cgroup::new(CONTAINER_BYTES);
    let backend = Backend::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), page, 5).expect("a free port");
    let connect_to = format!("backends={}", backend.address);
    let mut command = common::flick();
    command.args(["run", "examples/http_balancer/http_balancer.flick", "--io", io]);
    command.args(["--listen", "client=127.0.0.1:0", "--connect", &connect_to]);
    let service = Service::start_as(cgroup.enters(&command));
    let held: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut reader = wire::connect_narrow(service.address);
            reader.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("the service reads");
            reader
        })
        .collect();
    let (begun, mut rounds, mut refused, mut longest) = (Instant::now(), 0, 0, Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        rounds += 1;
        refused += u32::from(!is_served(service.address));
        longest = longest.max(asked.elapsed());
    }
    wait::until("an honest request to be served", || is_served(service.address).then_some(()));
    let (peak, kills) = (cgroup.peak_bytes(), cgroup.kills());
    println!(
        "{io}: at most {} KiB; {rounds} honest requests, {refused} of them refused, the longest {longest:?}",
        peak / 1024
    );
    assert!(longest < LONGEST_MAX, "{io}: an honest request has waited for {longest:?}");
    assert_eq!(kills, 0, "the kernel has killed the service");
    assert!(peak <= CONTAINER_BYTES, "{peak} bytes");
    drop(held);
    service.drained();
    backend.stop();
}
