//! Real web servers: nginx, Apache and HAProxy, each with a log of one line for each request that it saw.
//! Promises: each is started with a configuration of its own in a directory of its own, and ended by its own handle.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::peers::{free_address, signal, spawn};
use crate::common::process::OwnedChild;
use crate::common::{Scratch, wait};

/// Kind of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// nginx.
    Nginx,
    /// Apache's httpd.
    Apache,
    /// HAProxy, which answers by itself.
    Haproxy,
}

/// All of them.
pub const KINDS: [Kind; 3] = [Kind::Nginx, Kind::Apache, Kind::Haproxy];

/// A running server.
pub struct Server {
    child: OwnedChild,
    /// Address that it listens on.
    pub address: SocketAddr,
    log: PathBuf,
    files: Scratch,
}

/// Body of the response to `GET /hello`.
pub const HELLO: &str = "hello from a real server";
/// Bytes of `/large`.
pub const LARGE_BYTES: usize = 3_000_000;

impl Server {
    /// Starts one on a free port.
    pub fn start(kind: Kind, test: &str) -> Self {
        let address = free_address();
        let files = Scratch::new(&format!("{test}-{kind:?}-{}", address.port()));
        let root = files.path().to_path_buf();
        std::fs::create_dir_all(root.join("www")).expect("the directory can be written");
        files.write("www/hello", HELLO);
        files.write("www/large", &"large ".repeat(LARGE_BYTES / 6));
        let log = files.write("access.log", "");
        let (mut command, package) = match kind {
            Kind::Nginx => nginx(&files, address),
            Kind::Apache => apache(&files, address),
            Kind::Haproxy => haproxy(&files, address),
        };
        let child = if kind == Kind::Haproxy {
            let to_log = std::fs::File::create(&log).expect("the log can be written");
            command.stdin(Stdio::null()).stdout(to_log).stderr(Stdio::null());
            command.spawn().unwrap_or_else(|error| panic!("haproxy (Debian package {package}): {error}"))
        } else {
            spawn(&mut command, package)
        };
        let mut server = Self { child: OwnedChild(child), address, log, files };
        wait::until("the server to listen", || {
            let ended = server.child.try_wait().expect("our own child");
            assert!(ended.is_none(), "{kind:?} ended: {ended:?}: {}", server.errors());
            TcpStream::connect(address).ok()
        });
        server
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.files.path().join("error.log")).unwrap_or_default()
    }

    /// The requests that it saw so far, one line each.
    pub fn seen(&self) -> Vec<String> {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let lines = String::from_utf8_lossy(&log).lines().map(str::to_owned).collect::<Vec<_>>();
        // HAProxy's other messages stand in the same file.
        lines.into_iter().filter(|line| line.starts_with("seen ")).collect()
    }

    /// Ends it in good order, so that its log is whole; the requests that it saw.
    pub fn ended(mut self) -> Vec<String> {
        signal(self.child.id(), "TERM");
        wait::until("the server to end", || self.child.try_wait().expect("our own child"));
        self.seen()
    }
}

fn nginx(files: &Scratch, address: SocketAddr) -> (Command, &'static str) {
    let root = files.path().display().to_string();
    let config = files.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;
events {{ worker_connections 1024; }}
http {{
  log_format seen 'seen $request'; access_log {root}/access.log seen; default_type text/plain;
  client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u;
  scgi_temp_path {root}/s; client_max_body_size 0; keepalive_requests 1000000;
  server {{ listen {address}; root {root}/www; location /status/ {{ return 204; }} location /post {{ return 200 'posted'; }} }}
}}
"
        ),
    );
    let mut command = Command::new("nginx");
    command.arg("-e").arg(format!("{root}/error.log")).arg("-c").arg(config);
    // Its master would otherwise drop to a user that cannot read the scratch directory.
    command.arg("-g").arg("user root;");
    (command, "nginx-light")
}

fn apache(files: &Scratch, address: SocketAddr) -> (Command, &'static str) {
    let root = files.path().display().to_string();
    let modules = "/usr/lib/apache2/modules";
    let config = files.write(
        "apache.conf",
        &format!(
            "ServerRoot {root}
ServerName localhost
Listen {address}
PidFile {root}/pid
ErrorLog {root}/error.log
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule alias_module {modules}/mod_alias.so
DefaultRuntimeDir {root}
MaxKeepAliveRequests 0
User daemon
Group daemon
LogFormat \"seen %r\" seen
CustomLog {root}/access.log seen
DocumentRoot {root}/www
"
        ),
    );
    let mut command = Command::new("apache2");
    command.arg("-X").arg("-f").arg(config);
    (command, "apache2-bin")
}

/// One thread: a thread of HAProxy drops its line of the log while another one writes.
fn haproxy(files: &Scratch, address: SocketAddr) -> (Command, &'static str) {
    let config = files.write(
        "haproxy.cfg",
        &format!(
            "global
  log stdout format raw local0
  nbthread 1
  maxconn 1000
defaults
  mode http
  log global
  timeout client 30s
  timeout connect 5s
  timeout server 30s
  option dontlognull
  log-format \"seen %{{+Q}}r\"
frontend f
  bind {address}
  http-request return status 200 content-type text/plain string \"{}\"
",
            HELLO
        ),
    );
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(config);
    (command, "haproxy")
}
