//! `flick run` as a process: started on a free port, ended by its own id.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::{PROXY, flick, wait};

/// A running service.
pub struct Service {
    child: Child,
    /// Address that clients connect to.
    pub address: SocketAddr,
    admin: Receiver<SocketAddr>,
    admin_address: std::sync::OnceLock<SocketAddr>,
    /// Its log so far, and the thread that reads it.
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Service {
    /// Runs Listing 1 before these backends, with further arguments.
    pub fn proxy(backends: &[SocketAddr], extra: &[&str]) -> Self {
        let list: Vec<String> = backends.iter().map(ToString::to_string).collect();
        let connect = format!("backends={}", list.join(","));
        let mut args = vec!["run", PROXY, "--listen", "client=127.0.0.1:0", "--connect", &connect];
        args.extend_from_slice(extra);
        Self::start(&args)
    }

    /// Runs the tool with these arguments until it says where it listens. Panics with its log if it ends before.
    pub fn start(args: &[&str]) -> Self {
        let mut command = flick();
        command.args(args);
        Self::start_as(command)
    }

    /// As [`Service::start`], with a command whose arguments and environment are the caller's.
    pub fn start_as(command: Command) -> Self {
        Self::start_while(command, |_| {})
    }

    /// As [`Service::start_as`]; meanwhile something is done to the process, whose id that is.
    pub fn start_while(mut command: Command, meanwhile: impl FnOnce(u32)) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tool starts");
        let stderr = child.stderr.take().expect("stderr was asked for");
        let (found, address) = mpsc::channel();
        let (found_admin, admin) = mpsc::channel();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = kept.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
                drop(log);
                if let Some(address) = address_in(&line, "admin endpoint") {
                    // Only a test of the admin endpoint waits for it.
                    let _ = found_admin.send(address);
                }
                if let Some(address) = address_in(&line, "listening") {
                    // Only the first one is waited for.
                    let _ = found.send(address);
                }
            }
        });
        let mut service = Self {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            admin,
            admin_address: std::sync::OnceLock::new(),
            log,
            reader: Some(reader),
        };
        meanwhile(service.pid());
        service.address = service.listening(&address);
        service
    }

    fn listening(&mut self, address: &Receiver<SocketAddr>) -> SocketAddr {
        match address.recv_timeout(wait::WAIT_MAX) {
            Ok(address) => address,
            Err(_) => {
                let _ = self.child.kill();
                let status = self.child.wait();
                panic!("the service does not listen ({status:?}); its log:\n{}", self.read());
            }
        }
    }

    /// Returns the address of its admin endpoint, which must have been asked for with `--admin 0`.
    pub fn admin(&self) -> SocketAddr {
        self.admin.recv_timeout(wait::WAIT_MAX).expect("the service has an admin endpoint")
    }

    /// As [`Service::admin`], as often as wanted.
    pub fn admin_address(&self) -> SocketAddr {
        *self.admin_address.get_or_init(|| self.admin())
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        super::peers::signal(self.pid(), name);
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for its end, while another process that it has started may still write to its log.
    pub fn gone(&mut self) -> ExitStatus {
        wait::until("the service to end", || self.child.try_wait().expect("our own child"))
    }

    /// Waits for its end; its status and log.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let status = self.gone();
        (status, self.read())
    }

    /// Reads its log to the end.
    fn read(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader of a log does not panic");
        }
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends it and expects a clean drain; its log.
    pub fn drained(self) -> String {
        self.signal("TERM");
        let (status, log) = self.ended();
        assert_eq!(status.code(), Some(0), "a drained service ends with 0; its log:\n{log}");
        log
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // One that has ended already cannot be killed; after `wait` it is gone in any case.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            eprintln!("log of the service at {}:\n{log}", self.address);
        }
    }
}

/// The response of the admin endpoint at `at`. Retried: on a busy machine its client may time out.
pub fn seen(admin: SocketAddr, path: &str) -> (u16, String) {
    let at = flick_admin::Address::Tcp(admin);
    let reply =
        wait::until("the admin endpoint to answer", || flick_admin::client::get(&at, path, None).ok());
    (reply.status, reply.body)
}

/// The address in a log line that says `word`, as text or JSON.
pub fn address_in(line: &str, word: &str) -> Option<SocketAddr> {
    let is_said =
        [format!(" {word} "), format!("\"{word}\"")].iter().any(|said| line.contains(said.as_str()));
    if !is_said {
        return None;
    }
    let after = line.split_once("address")?.1;
    let start = after.find(|c: char| c.is_ascii_digit() || c == '[')?;
    let rest = &after[start..];
    let end = rest.find(|c: char| c.is_whitespace() || c == '"' || c == ',').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Reads all of a stream that ends.
pub fn read_all(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the stream ends cleanly");
    bytes
}
