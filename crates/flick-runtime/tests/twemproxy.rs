//! Our ring beside the real twemproxy: which server gets a key. `nutcracker` runs with servers of ours behind it that
//! answer with their own number. Needs the Debian package `nutcracker`. `FLICK_KETAMA_KEYS=N` asks for N keys a list.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flick_net::Endpoint;
use flick_runtime::BackendAddress;
use flick_runtime::load_balancer::KetamaRing;

/// Servers; lists are made of their numbers.
const SERVERS: usize = 50;
/// Of those, the ones at the port that is not part of a name, each at an address of its own.
const NAMELESS: usize = 3;
/// Keys in a list, unless the environment says otherwise: 110,000 over all lists.
const KEYS: usize = 10_000;
/// Requests sent before their replies are read.
const BATCH: usize = 100;
/// Weight of the server with this number.
type Weight = fn(usize) -> u32;
/// Longest wait for `nutcracker` to listen.
const START_MAX: Duration = Duration::from_secs(10);

fn step(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

/// Answers each `get KEY` on a connection with the server's number.
fn serve(number: usize, stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        let key = line.strip_prefix(b"get ").and_then(|rest| rest.strip_suffix(b"\r\n"));
        let key = key.expect("nutcracker passes on what it was sent").trim_ascii_end();
        let value = number.to_string();
        let mut reply = [b"VALUE ", key, b" 0 "].concat();
        write!(reply, "{}\r\n{value}\r\nEND\r\n", value.len()).expect("a vector takes anything");
        if stream.get_mut().write_all(&reply).is_err() {
            return;
        }
        line.clear();
    }
}

/// Starts a server in threads that end with the process.
fn start_tcp(number: usize, listener: TcpListener) -> Endpoint {
    let endpoint = Endpoint::Tcp(listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nodelay(true).expect("a connection takes options");
            std::thread::spawn(move || serve(number, stream));
        }
    });
    endpoint
}

/// A listener at port 11211 of an unused loopback address.
fn nameless(random: &mut u64) -> TcpListener {
    let address = |random: &mut u64| Ipv4Addr::from(0x7f40_0000 | (step(random) as u32 & 0x003f_ffff));
    let bound = (0..100).find_map(|_| TcpListener::bind((address(random), 11211)).ok());
    bound.expect("one of a hundred addresses is free")
}

fn servers(directory: &Path, random: &mut u64) -> Vec<Endpoint> {
    let mut servers: Vec<Endpoint> = (0..SERVERS - 1)
        .map(|number| {
            let listener = match number < NAMELESS {
                true => nameless(random),
                false => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports"),
            };
            start_tcp(number, listener)
        })
        .collect();
    let path = directory.join("server.sock");
    let listener = UnixListener::bind(&path).expect("the directory can be written");
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || serve(SERVERS - 1, stream));
        }
    });
    servers.push(Endpoint::Unix(path));
    servers
}

/// A running `nutcracker`, ended when dropped.
struct Twemproxy {
    child: Child,
    stream: UnixStream,
}

impl Drop for Twemproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Twemproxy {
    fn start(directory: &Path, list: &[BackendAddress]) -> Self {
        let socket = directory.join("proxy.sock");
        let _ = std::fs::remove_file(&socket);
        let mut config = format!(
            "pool:\n  listen: {}\n  hash: fnv1a_64\n  distribution: ketama\n  servers:\n",
            socket.display()
        );
        for BackendAddress { endpoint, weight, .. } in list {
            let line = match endpoint {
                Endpoint::Tcp(address) => format!("   - {}:{}:{weight}\n", address.ip(), address.port()),
                Endpoint::Unix(path) => format!("   - {}:{weight}\n", path.display()),
                Endpoint::Shm(_) | Endpoint::Descriptor(_) => panic!("twemproxy has no shared memory"),
            };
            config.push_str(&line);
        }
        let file = directory.join("proxy.yml");
        std::fs::write(&file, config).expect("the directory can be written");
        // It must have a port for its statistics, and takes no 0.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let mut child = Command::new("nutcracker")
            .args(["-a", "127.0.0.1", "-s", &port.to_string(), "-v", "1", "-c"])
            .arg(&file)
            .arg("-o")
            .arg(directory.join("proxy.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the Debian package `nutcracker` is installed");
        let start = Instant::now();
        let stream = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            if let Ok(Some(status)) = child.try_wait() {
                let log = std::fs::read_to_string(directory.join("proxy.log")).unwrap_or_default();
                panic!("nutcracker ended: {status}\n{log}");
            }
            assert!(start.elapsed() < START_MAX, "nutcracker does not listen");
            std::thread::yield_now();
        };
        Self { child, stream }
    }

    /// The numbers of the servers that get these keys.
    fn ask(&mut self, keys: &[Vec<u8>]) -> Vec<usize> {
        let requests: Vec<u8> =
            keys.iter().flat_map(|key| [b"get ", key.as_slice(), b"\r\n"].concat()).collect();
        self.stream.write_all(&requests).expect("nutcracker takes requests");
        let mut replies = BufReader::new(&self.stream);
        let mut line = Vec::new();
        let mut next = || {
            line.clear();
            replies.read_until(b'\n', &mut line).expect("nutcracker answers");
            line.trim_ascii_end().to_vec()
        };
        keys.iter()
            .map(|key| {
                assert!(next().starts_with(&[b"VALUE ", key.as_slice(), b" "].concat()), "{key:?}");
                let number = String::from_utf8(next()).ok().and_then(|number| number.parse().ok());
                assert_eq!(next(), b"END");
                number.expect("a server answers with its number")
            })
            .collect()
    }
}

/// A directory of its own, removed at the end.
struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A key of the text protocol: any bytes but blanks and control characters, those above 127 included.
fn key(random: &mut u64) -> Vec<u8> {
    let len = 1 + step(random) % 40;
    (0..len)
        .map(|_| step(random) as u8)
        .map(|byte| if matches!(byte, 0..=b' ' | 0x7f) { b'k' } else { byte })
        .collect()
}

#[test]
fn every_key_goes_to_the_server_that_twemproxy_picks() {
    let dir = TempDir(std::env::temp_dir().join(format!("flick-twemproxy-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).expect("the temporary directory can be written");
    let keys = std::env::var("FLICK_KETAMA_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(KEYS);
    let mut random = 0x2545_f491_4f6c_dd1d;
    let servers = servers(&dir.0, &mut random);
    // One; a few; the same with one less, with two more, in another order; counts where points are lost; all; and
    // weights.
    let all_alike: Weight = |_| 1;
    let lists: [(Vec<usize>, Weight); 11] = [
        (vec![7], all_alike),
        (vec![3, 4, 5, 6, 7], all_alike),
        (vec![3, 4, 6, 7], all_alike),
        (vec![3, 4, 6, 7, 0, 1], all_alike),
        (vec![49, 7, 1, 6, 4, 3, 0], all_alike),
        ((0..25).collect(), all_alike),
        ((1..48).rev().collect(), all_alike),
        ((0..SERVERS).collect(), all_alike),
        (vec![3, 4, 5], |number| [3, 1, 2][number - 3]),
        (vec![49, 0, 1, 7], |number| number as u32 % 4 + 1),
        ((0..25).collect(), |number| if number == 11 { 40 } else { 7 }),
    ];
    for (list, weight) in lists {
        let member = |number: &usize| BackendAddress::weighing(servers[*number].clone(), weight(*number));
        let chosen: Vec<BackendAddress> = list.iter().map(member).collect();
        let ring = KetamaRing::new(&chosen);
        let mut twemproxy = Twemproxy::start(&dir.0, &chosen);
        let mut asked = 0;
        let mut hit = vec![false; list.len()];
        while asked < keys {
            let batch: Vec<Vec<u8>> = (0..BATCH.min(keys - asked)).map(|_| key(&mut random)).collect();
            for (key, theirs) in batch.iter().zip(twemproxy.ask(&batch)) {
                let ours = ring.pick(key) as usize;
                assert_eq!(list[ours], theirs, "key {key:02x?} among servers {list:?} at {chosen:?}");
                hit[ours] = true;
            }
            asked += batch.len();
        }
        assert!(hit.iter().all(|hit| *hit), "every server gets keys: {list:?}");
    }
}
