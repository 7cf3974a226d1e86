//! The peers of the services, and what happens to them, to the machine and to the clients.
//! Promises: every kind of fault occurs once before one occurs again; what a fault breaks is over, or undone, when its
//! event ends; only requests that need what was away are excused.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::Random;
use super::clients::Outages;
use super::common::client::connect;
use super::common::http::{Backend, echoed};
use super::common::peers::{self, Server};
use super::common::process::descriptors;
use super::common::service::Service;
use super::common::wait;

/// Clients that do not read, or write slowly, at a time.
const SLOW_CLIENTS: usize = 20;
/// The longest stop of a backend.
const STOP_MS_MAX: u64 = 1_500;
/// The longest jump of the clock, in seconds.
const JUMP_S_MAX: u64 = 86_400;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Reload,
    KillMemcached,
    KillRedis,
    StopServer,
    HttpBackendAway,
    HttpBackendFlaps,
    ResetConnections,
    FullDisk,
    ClockJump,
    FewDescriptors,
    SlowReaders,
    SlowWriters,
    Misbehave,
}

impl Fault {
    const ALL: [Self; 13] = [
        Self::Reload,
        Self::KillMemcached,
        Self::KillRedis,
        Self::StopServer,
        Self::HttpBackendAway,
        Self::HttpBackendFlaps,
        Self::ResetConnections,
        Self::FullDisk,
        Self::ClockJump,
        Self::FewDescriptors,
        Self::SlowReaders,
        Self::SlowWriters,
        Self::Misbehave,
    ];
}

/// Outages by what is away.
#[derive(Default)]
pub struct Away {
    pub http: Arc<Outages>,
    pub memcached: Arc<Outages>,
    pub redis: Arc<Outages>,
    /// Nothing that a service without backends needs is ever away.
    pub nothing: Arc<Outages>,
}

/// Everything that runs beside the service.
pub struct Scene {
    pub http: SocketAddr,
    pub echo: Option<Backend>,
    pub memcacheds: Vec<Option<Server>>,
    pub redises: Vec<Option<Server>>,
    /// Addresses of the six services.
    pub addresses: Vec<SocketAddr>,
    pub away: Away,
    /// The program that reloads change.
    pub program: PathBuf,
    pub program_text: String,
    /// The directory of the access log, as other processes see it: a small disk.
    pub log: PathBuf,
    /// The file that says how far the service's clock is off.
    pub clock: PathBuf,
    /// Faults that have not occurred in this round.
    pub due: Vec<Fault>,
    pub slow: Vec<TcpStream>,
    pub reloads: u64,
}

impl Scene {
    /// Lets the next fault occur; returns it.
    pub fn event(&mut self, random: &mut Random, service: &Service) -> Fault {
        if self.due.is_empty() {
            self.due.extend(Fault::ALL);
        }
        let fault = self.due.swap_remove(random.below(self.due.len() as u64) as usize);
        match fault {
            Fault::Reload => self.reload(service),
            Fault::KillMemcached => replace(&mut self.memcacheds, random, &self.away.memcached),
            Fault::KillRedis => replace(&mut self.redises, random, &self.away.redis),
            Fault::StopServer => self.stop_server(random),
            Fault::HttpBackendAway => self.http_backend_away(Duration::from_millis(random.below(300))),
            Fault::HttpBackendFlaps => (0..5).for_each(|_| self.http_backend_away(Duration::ZERO)),
            Fault::ResetConnections => (0..20).for_each(|_| reset(self.any_address(random), random)),
            Fault::FullDisk => self.full_disk(),
            Fault::ClockJump => self.clock_jump(random),
            Fault::FewDescriptors => self.few_descriptors(service),
            Fault::SlowReaders => self.slow_readers(random),
            Fault::SlowWriters => self.slow_writers(random),
            Fault::Misbehave => (0..5).for_each(|_| misbehave(self.any_address(random), random)),
        }
        fault
    }

    fn any_address(&self, random: &mut Random) -> SocketAddr {
        self.addresses[random.below(self.addresses.len() as u64) as usize]
    }

    fn reload(&mut self, service: &Service) {
        self.reloads += 1;
        let text = format!("{}\n# Version {}.\n", self.program_text, self.reloads);
        fs::write(&self.program, text).expect("the directory can be written");
        service.signal("HUP");
    }

    fn stop_server(&self, random: &mut Random) {
        let (servers, away) = match random.below(2) {
            0 => (&self.memcacheds, &self.away.memcached),
            _ => (&self.redises, &self.away.redis),
        };
        let server = servers[random.below(servers.len() as u64) as usize].as_ref().expect("it was replaced");
        away.during(|| {
            peers::signal(server.pid(), "STOP");
            std::thread::sleep(Duration::from_millis(random.below(STOP_MS_MAX)));
            peers::signal(server.pid(), "CONT");
        });
    }

    fn http_backend_away(&mut self, time: Duration) {
        let away = Arc::clone(&self.away.http);
        away.during(|| {
            self.echo.take().expect("it was started again").stop();
            std::thread::sleep(time);
            self.echo = Some(wait::until("its port to be free", || Backend::start_at(self.http, echoed, 0)));
        });
    }

    /// Fills the disk of the access log. Requests go on: the log loses lines, and nothing else does.
    fn full_disk(&self) {
        let filler = self.log.join("filler");
        let mut file = fs::File::create(&filler).expect("the disk of the log is there");
        while file.write_all(&[0; 4096]).is_ok() {}
        std::thread::sleep(Duration::from_millis(500));
        fs::remove_file(filler).expect("the file is ours");
    }

    /// Lets the time of day jump, ahead or back.
    fn clock_jump(&self, random: &mut Random) {
        let sign = if random.below(2) == 0 { '+' } else { '-' };
        fs::write(&self.clock, format!("{sign}{}\n", random.below(JUMP_S_MAX))).expect("the file is ours");
    }

    /// Takes all free descriptors: new clients wait, new connections to backends fail.
    fn few_descriptors(&self, service: &Service) {
        let pid = service.pid().to_string();
        let prlimit = |args: &[&str]| {
            let output =
                peers::output(Command::new("prlimit").args(["--pid", &pid]).args(args), "util-linux");
            assert!(output.status.success(), "the limits of our own child: {output:?}");
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        };
        // A colon behind the soft limit leaves the hard limit as it is.
        let limit = |number: &str| prlimit(&[&format!("--nofile={number}:")]);
        let usual = prlimit(&["--nofile", "--output", "SOFT", "--noheadings", "--raw"]);
        let Away { http, memcached, redis, .. } = &self.away;
        http.during(|| {
            memcached.during(|| {
                redis.during(|| {
                    limit(&(descriptors(service.pid()) + 1).to_string());
                    let waiting: Vec<_> = self.addresses.iter().map(|address| connect(*address)).collect();
                    std::thread::sleep(Duration::from_millis(500));
                    drop(waiting);
                    limit(&usual);
                });
            });
        });
    }

    /// Clients that ask for much and read nothing, until the next ones come.
    fn slow_readers(&mut self, random: &mut Random) {
        let request: (SocketAddr, Vec<u8>) = match random.below(3) {
            0 => {
                let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(4000));
                (self.addresses[0], target.repeat(50).into_bytes())
            }
            1 => (self.addresses[1], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500)),
            _ => {
                let value = "v".repeat(20_000);
                let set = format!("set large 0 0 {}\r\n{value}\r\n", value.len());
                (self.addresses[5], (set + &"get large\r\n".repeat(300)).into_bytes())
            }
        };
        self.slow = (0..SLOW_CLIENTS).map(|_| connect(request.0)).collect();
        for stream in &mut self.slow {
            stream.set_nonblocking(true).expect("a TCP socket");
            // What the service does not take is not sent.
            let _ = stream.write(&request.1);
        }
    }

    /// Clients whose requests come byte by byte.
    fn slow_writers(&mut self, random: &mut Random) {
        let address = self.any_address(random);
        let mut streams: Vec<_> = (0..SLOW_CLIENTS).map(|_| connect(address)).collect();
        for byte in b"GET /slow HTTP/1.1\r\nHost: a" {
            for stream in &mut streams {
                // Some services refuse the first bytes.
                let _ = stream.write_all(&[*byte]);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn replace(servers: &mut [Option<Server>], random: &mut Random, away: &Outages) {
    let server = &mut servers[random.below(servers.len() as u64) as usize];
    away.during(|| *server = server.take().map(Server::replace));
}

/// Sends part of a request and resets the connection.
fn reset(address: SocketAddr, random: &mut Random) {
    let mut stream = connect(address);
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let _ = stream.write_all(&request[..random.below(request.len() as u64) as usize]);
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a TCP socket");
}

/// A client that says nonsense, half of something, or nothing, and leaves.
fn misbehave(address: SocketAddr, random: &mut Random) {
    let mut stream = connect(address);
    let said: &[u8] = match random.below(4) {
        0 => b"\x00\xff nonsense of no protocol\r\n\r\n",
        1 => b"GET / HTTP/1.1\r\nHost",
        2 => b"\x80\x01\x00\x05\x08\x00\x00\x00\x00\x00\x00\x12",
        _ => b"",
    };
    // It may be rejected before it has sent everything.
    let _ = stream.write_all(said);
}
