//! A page of three tiers: wrk, nginx, a web service (node, or php-fpm behind FastCGI), redis. The service asks redis
//! for a number of values, one after the other; wrk compares each page with what it has to be.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::geteuid;

use super::servers::{Served, redis_command};
use super::setting::{Mode, Setting};
use crate::process::{CpuTimes, Server, children_of, cpu_of, free_addr, workspace};
use crate::rivals::nginx as nginx_command;
use crate::wrk;

const NGINX: &str = include_str!("../../scenarios/accel/page-nginx.conf");
const FPM: &str = include_str!("../../scenarios/accel/page-fpm.conf");
/// Values that redis has.
const VALUES: usize = 64;
/// Numbers of round trips to redis that a page makes.
pub(super) const ROUND_TRIPS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 64];

/// The service that makes a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Web {
    Node,
    Php,
}

impl Web {
    pub(super) fn name(self) -> &'static str {
        match self {
            Web::Node => "node",
            Web::Php => "php-fpm",
        }
    }

    fn start(self, setting: &Setting<'_>, side: Mode, redis: SocketAddr) -> io::Result<WebServer> {
        let addr = free_addr()?;
        let command = match self {
            Web::Node => {
                let mut command = setting.command_with_jit(side, "node");
                command
                    .arg(scenario("page.js"))
                    .args([addr.port(), redis.port()].map(|port| port.to_string()));
                command
            }
            Web::Php => {
                let config = setting.scratch.0.join("page-fpm.conf");
                let user = if geteuid().is_root() { "user = root\ngroup = root" } else { "" };
                let text = FPM.replace("{web}", &addr.to_string()).replace("{user}", user);
                std::fs::write(&config, text)?;
                let mut command = setting.command(side, php_fpm()?);
                command.args(["-R", "-F", "-y"]).arg(config);
                command
            }
        };
        Ok(WebServer(Server::start_anywhere(command, addr)?))
    }

    /// The directives by which nginx passes a request on.
    fn pass(self, redis: SocketAddr) -> String {
        match self {
            Web::Node => {
                "proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection \"\";".to_owned()
            }
            Web::Php => format!(
                "fastcgi_pass web; fastcgi_keep_conn on; include /etc/nginx/fastcgi_params; fastcgi_param \
                 SCRIPT_FILENAME {}; fastcgi_param REDIS_PORT {};",
                scenario("page.php").display(),
                redis.port()
            ),
        }
    }
}

/// A web service, which ends its own children when it is asked to end.
struct WebServer(Server);

impl WebServer {
    fn addr(&self) -> io::Result<SocketAddr> {
        self.0.ip()
    }

    /// It and the processes that it has started.
    fn pids(&self) -> io::Result<Vec<u32>> {
        let own = pid(&self.0);
        let mut pids = children_of(own)?;
        pids.push(own);
        Ok(pids)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.0.terminate();
    }
}

fn pid(server: &Server) -> u32 {
    server.pid().as_raw_nonzero().get().unsigned_abs()
}

fn scenario(name: &str) -> PathBuf {
    workspace().join("bench/scenarios/accel").join(name)
}

/// The program of Debian's php-fpm, whose name has its version.
fn php_fpm() -> io::Result<PathBuf> {
    let entries = std::fs::read_dir("/usr/sbin")?.flatten().map(|entry| entry.path());
    let is_it =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"php-fpm"));
    let found = entries.filter(is_it).max();
    found.ok_or_else(|| io::Error::other("there is no php-fpm; the package of this name has it"))
}

/// Enters the values.
fn fill(redis: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(redis)?;
    let commands: String = (0..VALUES).map(|n| format!("SET key{n} value{n:03}\r\n")).collect();
    stream.write_all(commands.as_bytes())?;
    let mut replies = vec![0; VALUES * b"+OK\r\n".len()];
    stream.read_exact(&mut replies)?;
    if replies == b"+OK\r\n".repeat(VALUES) {
        return Ok(());
    }
    Err(io::Error::other(format!("redis answered {:?}", String::from_utf8_lossy(&replies))))
}

fn load(setting: &Setting<'_>, side: Mode, addr: SocketAddr, script: &Path, round_trips: usize) -> Command {
    let mut load = setting.command(side, "wrk");
    load.args(["-t1", "-c1", "--latency", "--timeout", "5s", "-s"]).arg(script);
    load.arg(format!("-d{}s", setting.args.seconds)).arg(format!("http://{addr}/{round_trips}"));
    load.args(["--", &round_trips.to_string()]).stderr(Stdio::inherit());
    load
}

/// Pages per second on one connection, and the processor time of the three servers.
pub(super) fn measure(setting: &Setting<'_>, side: Mode, web: Web, round_trips: usize) -> io::Result<Served> {
    let redis_addr = free_addr()?;
    let redis = redis_command(setting, side, &redis_addr.port().to_string());
    let redis = Server::start_anywhere(redis, redis_addr)?;
    fill(redis_addr)?;
    let service = web.start(setting, side, redis_addr)?;
    let addr = free_addr()?;
    let config = NGINX.replace("{listen}", &addr.to_string()).replace("{web}", &service.addr()?.to_string());
    let plain =
        nginx_command(&config.replace("{pass}", &web.pass(redis_addr)), "page.conf", &setting.scratch)?;
    let mut command = setting.command(side, plain.get_program());
    command.args(plain.get_args());
    let nginx = Server::start_anywhere(command, addr)?;
    let mut pids = service.pids()?;
    pids.extend([pid(&nginx), pid(&redis)]);
    let times = || pids.iter().map(|pid| cpu_of(*pid)).collect::<io::Result<Vec<CpuTimes>>>();
    let before = times()?;
    let output = setting.output(&mut load(setting, side, addr, &scenario("page.lua"), round_trips))?;
    let intervals: Vec<_> = times()?.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
    let (pages, rate) = wrk::requests_and_rate(&output)?;
    let kernel: f64 = intervals.iter().map(|interval| interval.system.as_secs_f64()).sum();
    let all = kernel + intervals.iter().map(|interval| interval.user.as_secs_f64()).sum::<f64>();
    Ok(Served { rate, cpu_us: all * 1e6 / pages, kernel_share: kernel / all })
}
