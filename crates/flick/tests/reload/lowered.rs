//! Reloads and upgrades that lower a limit below the number of connected clients, and requests during an upgrade.

use std::net::TcpStream;
use std::path::PathBuf;

use super::common::process::OwnedPid;
use super::common::service::Service;
use super::common::{self, Scratch, wait};
use super::load::{self, get};
use super::{RELOADS_TOTAL, balancer, connect, figure, process_in};

/// Clients who are connected when the limit falls below them.
const CLIENTS: usize = 30;

/// A balancer with settings that can be changed, on two workers.
struct Limited {
    scratch: Scratch,
    service: Service,
    admin: String,
}

impl Limited {
    fn start(test: &str, max_connections: usize) -> Self {
        let scratch = Scratch::new(test);
        scratch.write("balancer.flick", &balancer(0));
        let admin = format!("unix:{}", scratch.path().join("admin").display());
        let settings = Self::write(&scratch, max_connections);
        let settings = settings.to_str().expect("the path is UTF-8");
        let service = Service::start(&["run", "--config", settings, "--admin", &admin]);
        Self { scratch, service, admin }
    }

    fn write(scratch: &Scratch, max_connections: usize) -> PathBuf {
        let text = format!(
            "workers = 2\n[[service]]\nprogram = \"balancer.flick\"\nlisten = {{ client = \"127.0.0.1:0\" }}\n\
             connect = {{ backends = [\"{}\"] }}\nlimits = {{ max_connections = {max_connections}, on_max_connections = \"reject\" }}\n",
            load::origin()
        );
        scratch.write("flick.toml", &text)
    }

    fn clients(&self) -> Vec<TcpStream> {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| connect(self.service.address)).collect();
        self.ask(&mut clients);
        clients
    }

    /// Each is answered, by either generation.
    fn ask(&self, clients: &mut [TcpStream]) {
        for client in clients {
            assert_eq!(get(client, "/version"), Ok("version 0".to_owned()));
        }
    }

    /// Lowers the limit and has it take effect.
    fn lower(&self, how: &str) -> String {
        Self::write(&self.scratch, 5);
        let (status, stdout, error) = common::run(&[how, &self.admin]);
        assert_eq!(status, 0, "{error}");
        stdout
    }
}

#[test]
fn clients_above_a_limit_lowered_by_a_reload_stay() {
    let limited = Limited::start("reload-lowered", 100);
    let mut clients = limited.clients();
    limited.lower("reload");
    for _ in 0..3 {
        limited.ask(&mut clients);
    }
    assert!(get(&mut connect(limited.service.address), "/version").is_err(), "no further client is accepted");
    drop(clients);
    wait::until("a new client to be accepted", || {
        get(&mut connect(limited.service.address), "/version").ok()
    });
    limited.service.drained();
}

#[test]
fn clients_above_a_limit_lowered_by_an_upgrade_stay() {
    let mut limited = Limited::start("upgrade-lowered", 100);
    let mut clients = limited.clients();
    let output = limited.lower("upgrade");
    let _second = OwnedPid(process_in(&output));
    for _ in 0..3 {
        limited.ask(&mut clients);
    }
    assert_eq!(limited.service.gone().code(), Some(0));
    limited.ask(&mut clients);
}

#[test]
fn reload_signal_during_an_upgrade_reaches_the_new_process() {
    let scratch = Scratch::new("upgrade-reload");
    let program = scratch.write("balancer.flick", &balancer(0));
    let admin = super::common::peers::free_address();
    let (at, connect_to) = (admin.to_string(), format!("backends={}", load::origin()));
    let path = program.to_str().expect("the path is UTF-8");
    let args = ["run", path, "--listen", "client=127.0.0.1:0", "--connect", &connect_to, "--admin", &at];
    let mut first = Service::start(&args);
    first.signal("USR2");
    // Sent at once, the second signal could arrive first: of several that are pending, the kernel delivers the one with
    // the lowest number first.
    let second = wait::until("the new process", || {
        let processes = std::fs::read_dir("/proc").expect("there is one");
        let is_second = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            *pid != first.pid() && line.contains(path) && !line.contains("\0launcher\0")
        };
        processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_second)
    });
    let _second = OwnedPid(second);
    // The new process may read the program at any time, and must not find half of it.
    let next = scratch.write("next.flick", &balancer(1));
    std::fs::rename(next, &program).expect("the directory is the test's");
    first.signal("HUP");
    assert_eq!(first.gone().code(), Some(0));
    wait::until("the reload", || (figure(admin, RELOADS_TOTAL) == 1).then_some(()));
}
