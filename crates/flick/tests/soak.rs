//! A soak: six services in one process under load, while programs are reloaded, backends killed, stopped and away,
//! connections reset, the disk of the log filled, the clock moved, descriptors taken, and clients misbehave, in an
//! order that is drawn from a seed. No error that no outage explains, no reply to another client, no growth.
//!
//! `FLICK_SOAK_SECONDS=1200` makes it twenty minutes; `FLICK_SEED` chooses the order.

mod common;

#[path = "soak/clients.rs"]
mod clients;
#[path = "soak/faults.rs"]
mod faults;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clients::{Clients, Exchange};
use common::http::{Backend, echoed};
use common::lateness::Lateness;
use common::peers::{self, Memcached, Redis, Server};
use common::process::{resident_kib, sockets_and_others};
use common::service::Service;
use common::{Scratch, wait};
use faults::{Away, Fault, Scene};
use flick_load::load::{self, LoadConfig, LoadProtocol, LoadRun, ValueSize};

/// Duration of an ordinary run, in seconds.
const SECONDS: u64 = 15;
/// Requests a second of each of the two loads of memcached clients.
const RATE_PER_S: f64 = 1_500.0;
/// Growth of resident memory that is none: an older generation beside the new one, clients that do not read.
const GROWTH_KIB_MAX: u64 = 48 * 1024;
/// Sockets that may be open beyond those after the start once no client is left: idle connections to six servers from
/// two workers of four services.
const IDLE_SOCKETS_MAX: usize = 24;
/// Events that are printed with a failure.
const DIARY_LINES: usize = 12;
/// The disk of the access log, in MiB.
const DISK_MIB: u64 = 8;

/// A generator of numbers.
pub struct Random(u64);

impl Random {
    /// Draws a number below `below`.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

fn memcached_load(addr: SocketAddr, protocol: LoadProtocol, seed: u64) -> LoadRun {
    let config = LoadConfig {
        protocol,
        connections: 24,
        depth: 4,
        keys: 2_000,
        value: ValueSize::Between(0, 3_000),
        get_ratio: 0.8,
        rate_per_s: Some(RATE_PER_S),
        seed,
        ..LoadConfig::new(addr)
    };
    load::start(config).expect("the load starts")
}

/// The last events, printed with a failure.
struct Diary {
    begun: Instant,
    lines: VecDeque<String>,
    lateness: Lateness,
}

impl Diary {
    fn note(&mut self, fault: Fault, from: Instant) {
        if self.lines.len() == DIARY_LINES {
            self.lines.pop_front();
        }
        let late = self.lateness.worst_since();
        self.lines.push_back(format!(
            "{:?} to {:?}: {fault:?}; a thread was woken {late:?} late",
            from - self.begun,
            self.begun.elapsed()
        ));
    }

    fn text(&self) -> String {
        self.lines.iter().map(|line| format!("  {line}\n")).collect()
    }
}

const BALANCER: &str = "examples/http_balancer/round_robin.flick";

/// The settings of six services; the balancer's program is one that changes.
fn settings(
    scratch: &Scratch,
    addresses: &[SocketAddr],
    http: SocketAddr,
    memcacheds: &[Server],
    redises: &[Server],
) -> PathBuf {
    let list = |servers: &[Server]| {
        let servers: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.address)).collect();
        servers.join(", ")
    };
    let example = |path: &str| common::root().join("examples").join(path).display().to_string();
    let (memcacheds, redises) = (list(memcacheds), list(redises));
    let balancer = scratch.path().join("balancer.flick").display().to_string();
    let services = [
        ("balancer", balancer, format!("connect = {{ backends = [\"{http}\"] }}")),
        ("page", example("http_static/http_static.flick"), String::new()),
        (
            "proxy",
            common::root().join(common::PROXY).display().to_string(),
            format!("connect = {{ backends = [{memcacheds}] }}"),
        ),
        (
            "text",
            example("memcached_text_proxy/memcached_text_proxy.flick"),
            format!("connect = {{ backends = [{memcacheds}] }}"),
        ),
        (
            "redis",
            example("redis_sharding/redis_sharding.flick"),
            format!("connect = {{ shards = [{redises}] }}"),
        ),
        ("store", example("key_value_server/key_value_server.flick"), String::new()),
    ];
    let mut text = format!(
        "workers = 2\nshutdown_timeout = \"5s\"\naccess_log = \"{}\"\naccess_log_sample = \"1/10\"\n\
         access_log_max_size = \"2MiB\"\naccess_log_keep = 1\n",
        scratch.path().join("log/access.log").display()
    );
    for ((name, program, connect), address) in services.iter().zip(addresses) {
        text += &format!(
            "\n[[service]]\nname = \"{name}\"\nprogram = \"{program}\"\nlisten = {{ client = \"{address}\" }}\n{connect}\n"
        );
    }
    scratch.write("flick.toml", &text)
}

/// Starts flick with a small disk for its log, in a mount namespace, and with a clock that the file `clock` moves.
fn start(config: &Path, log: &Path, clock: &Path) -> Service {
    let script = format!(
        "mount -t tmpfs -o size={DISK_MIB}m tmpfs '{}' && LD_PRELOAD='{}' exec \"$0\" \"$@\"",
        log.display(),
        libfaketime().display()
    );
    let flick = common::flick();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]);
    command.arg(flick.get_program()).args(["run", "--config"]).arg(config);
    command.current_dir(common::root()).env("NO_COLOR", "1").env_remove("FLICK_LOG");
    command.env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Service::start_as(command)
}

/// Returns the library that moves the clock of one process.
fn libfaketime() -> PathBuf {
    let directories = std::fs::read_dir("/usr/lib").expect("Debian has it");
    directories
        .flatten()
        .map(|directory| directory.path().join("faketime/libfaketime.so.1"))
        .find(|library| library.exists())
        .expect("libfaketime is installed: `apt-get install faketime`")
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn soak_with_faults_over_six_services_has_no_leaks_and_no_unexplained_errors() {
    let time = Duration::from_secs(number("FLICK_SOAK_SECONDS", SECONDS));
    let seed = number("FLICK_SEED", 1);
    println!("FLICK_SEED={seed}");
    let mut random = Random(seed);
    let scratch = Scratch::new("soak");
    let (memcacheds, redises) = (Memcached::several(3), Redis::several(2));
    let http = peers::own_address();
    let addresses: Vec<_> = (0..6).map(|_| peers::free_address()).collect();
    let program_text = std::fs::read_to_string(common::root().join(BALANCER)).expect("an example");
    let program = scratch.write("balancer.flick", &program_text);
    let clock = scratch.write("clock", "+0\n");
    let log = scratch.path().join("log");
    std::fs::create_dir(&log).expect("the directory can be written");
    let config = settings(&scratch, &addresses, http, &memcacheds, &redises);
    let echo = wait::until("a port", || Backend::start_at(http, echoed, 0));
    let service = start(&config, &log, &clock);
    let inside = format!("/proc/{}/root{}", service.pid(), log.display());
    let mut scene = Scene {
        http,
        echo: Some(echo),
        memcacheds: memcacheds.into_iter().map(Some).collect(),
        redises: redises.into_iter().map(Some).collect(),
        addresses: addresses.clone(),
        away: Away::default(),
        program,
        program_text,
        log: PathBuf::from(inside),
        clock,
        due: Vec::new(),
        slow: Vec::new(),
        reloads: 0,
    };
    for address in &addresses {
        wait::until("every service to listen", || TcpStream::connect(address).ok());
    }
    let started = sockets_and_others(service.pid());
    let proxy = memcached_load(addresses[2], LoadProtocol::Binary, seed);
    let store = memcached_load(addresses[5], LoadProtocol::Text, seed + 1);
    let away = &scene.away;
    let clients = [
        Clients::start("balancer", Exchange::Http, addresses[0], &away.http),
        Clients::start("page", Exchange::Page, addresses[1], &away.nothing),
        Clients::start("text", Exchange::Memcached, addresses[3], &away.memcached),
        Clients::start("redis", Exchange::Redis, addresses[4], &away.redis),
        Clients::start("store", Exchange::Memcached, addresses[5], &away.nothing),
    ];
    let (begun, mut warm, mut most) = (Instant::now(), 0, 0);
    let (mut printed, mut events) = (Instant::now(), 0);
    let mut diary = Diary { begun, lines: VecDeque::new(), lateness: Lateness::watch() };
    while begun.elapsed() < time {
        std::thread::sleep(Duration::from_millis(100 + random.below(300)));
        let from = Instant::now();
        let fault = scene.event(&mut random, &service);
        events += 1;
        diary.note(fault, from);
        if let Some(error) = clients.iter().find_map(Clients::unexplained) {
            panic!("after {:?}: {error}\n{}", begun.elapsed(), diary.text());
        }
        let now_kib = resident_kib(service.pid());
        // The peaks are compared: how much there is swings with the generations that are there at a time.
        let elapsed = begun.elapsed();
        let peak = if elapsed > time * 2 / 3 { &mut most } else { &mut warm };
        *peak = now_kib.max(*peak);
        if printed.elapsed() > Duration::from_secs(30) {
            printed = Instant::now();
            println!("{elapsed:?}: {now_kib} KiB, {events} events\n{}", diary.text());
        }
    }
    let logged = std::fs::metadata(scene.log.join("access.log")).map(|metadata| metadata.len());
    for served in clients.map(Clients::end) {
        println!("{served}");
    }
    [&proxy, &store].into_iter().for_each(LoadRun::stop);
    let (proxy, store) = (proxy.wait(), store.wait());
    println!(
        "{events} events, {} reloads; proxy {} and {} errors; store {}; {warm} KiB became {most}",
        scene.reloads, proxy.counts.replies, proxy.counts.errors, store.counts.replies,
    );
    for (name, report) in [("proxy", &proxy), ("store", &store)] {
        let counts = &report.counts;
        assert!(counts.replies > 0, "{name} serves");
        assert_eq!((counts.wrong, counts.lost, counts.disconnects), (0, 0, 0), "{name}: {report:?}");
    }
    assert_eq!(store.counts.errors, 0, "nothing of the store was away: {store:?}");
    assert!(logged.is_ok_and(|len| len > 0), "the log goes on when its disk has space again");
    scene.slow.clear();
    wait::until(&format!("no more than {started:?} sockets and other descriptors to be left"), || {
        let (sockets, others) = sockets_and_others(service.pid());
        (sockets <= started.0 + IDLE_SOCKETS_MAX && others <= started.1).then_some(())
    });
    let log = service.drained();
    assert!(most <= warm + GROWTH_KIB_MAX, "{warm} KiB have become {most} KiB");
    assert!(!log.contains("panicked"), "{log}");
}
