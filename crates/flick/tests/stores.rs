//! The services of memcached's text protocol and of Redis between real servers and clients, none of them ours; beside
//! them the relay and the counter of packets, between sockets of the tests' own.

#[path = "stores/binary_failures.rs"]
mod binary_failures;
mod common;
#[path = "stores/linearizable.rs"]
mod linearizable;
#[path = "stores/many_keys.rs"]
mod many_keys;
#[path = "stores/mixed_clients.rs"]
mod mixed_clients;
#[path = "stores/silent_server.rs"]
mod silent_server;
#[path = "stores/snapshots.rs"]
mod snapshots;
#[path = "stores/store_command.rs"]
mod store_command;
#[path = "stores/peers.rs"]
mod stores;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use common::client::{connect, read_until};
use common::peers::{Memcached, Redis, Server, addresses, output};
use common::process::OwnedChild;
use common::service::{Service, read_all};
use common::{captured, run, wait};
use serde_json::Value;
use stores::{Sink, capture, exchange, service};

const TOOLS: &str = "libmemcached-tools";
const REDIS_TOOLS: &str = "redis-tools";
/// Tests of `memccapable` for each protocol.
const CAPABILITIES: usize = 27;
/// Longest value of the key-value server; memcached, asked for nothing else, keeps not quite so much.
const MEBIBYTE: usize = 1024 * 1024;

fn text_proxy(backends: &[SocketAddr], extra: &[&str]) -> Service {
    service("memcached_text_proxy", Some(("backends", backends)), extra)
}

/// Runs `memccapable`, with `-a` for the text protocol or `-b` for the binary one. All tests must pass.
fn has_every_capability(service: &Service, option: &str) {
    let port = service.address.port().to_string();
    let mut memccapable = Command::new("memccapable");
    let (_, stdout, stderr) =
        captured(output(memccapable.args(["-h", "127.0.0.1", "-p", &port, option, "-t", "30"]), TOOLS));
    // It prints the verdict `[FAIL]` on stderr, so that a test which failed has none on its line.
    let name = if option == "-a" { "ascii " } else { "binary " };
    let (passed, failed): (Vec<_>, Vec<_>) =
        stdout.split(name).skip(1).partition(|line| line.contains("[pass]"));
    assert!(failed.is_empty(), "{failed:?}\n{stderr}");
    assert_eq!(passed.len(), CAPABILITIES, "memccapable ends early:\n{stdout}\n{stderr}");
}

#[test]
fn memccapable_through_the_text_proxy() {
    let server = Memcached::start();
    for io in ["epoll", "auto"] {
        let proxy = text_proxy(&[server.address], &["--io", io]);
        has_every_capability(&proxy, "-a");
        proxy.drained();
    }
}

#[test]
fn memccapable_with_the_key_value_server() {
    for io in ["epoll", "auto"] {
        let server = service("key_value_server", None, &["--io", io, "--workers", "2"]);
        has_every_capability(&server, "-a");
        server.drained();
        let program = "examples/key_value_server/binary_server.flick";
        let listen = "client=127.0.0.1:0";
        let server = Service::start(&["run", program, "--listen", listen, "--io", io, "--workers", "2"]);
        has_every_capability(&server, "-b");
        server.drained();
    }
}

/// Requests that take many time slices.
const PIPELINED: usize = 20_000;

/// Replies of a task that does not get done in its slices are batched, and none is lost.
#[test]
fn pipelining_over_many_time_slices_gets_every_reply() {
    for io in ["epoll", "auto"] {
        let server = service("key_value_server", None, &["--io", io, "--time-slice", "10us"]);
        let mut client = connect(server.address);
        let mut writer = client.try_clone().expect("a socket can be shared");
        let sent =
            std::thread::spawn(move || writer.write_all("get no-such-key\r\n".repeat(PIPELINED).as_bytes()));
        let mut replies = vec![0; PIPELINED * 5];
        client.read_exact(&mut replies).expect("every reply comes");
        assert!(replies.chunks(5).all(|reply| reply == b"END\r\n"), "{io}");
        sent.join().expect("it only writes").expect("the server reads");
        server.drained();
    }
}

/// Returns the answer to a `get` of these keys.
fn found<'a>(keys: impl Iterator<Item = &'a String>) -> String {
    let values: String = keys.map(|key| format!("VALUE {key} 7 {}\r\n<{key}>\r\n", key.len() + 2)).collect();
    format!("{values}END\r\n")
}

/// M6: the reply is whole, in the order of the keys, with one END; keys of a dead backend are misses.
#[test]
fn multi_get_over_four_servers_keeps_the_order() {
    const DEAD: usize = 2;
    let mut servers = Memcached::several(4);
    let proxy = text_proxy(&addresses(&servers), &[]);
    let keys: Vec<String> = (0..40).map(|n| format!("key{n}")).collect();
    let mut client = connect(proxy.address);
    for key in &keys {
        let set = format!("set {key} 7 0 {}\r\n<{key}>\r\n", key.len() + 2);
        exchange(&mut client, set.as_bytes(), b"STORED\r\n");
    }
    let all = format!("get {}\r\n", keys.join(" "));
    exchange(&mut client, all.as_bytes(), found(keys.iter()).as_bytes());

    let mut direct = connect(servers[DEAD].address);
    let is_dead: Vec<bool> = keys
        .iter()
        .map(|key| {
            direct.write_all(format!("mg {key}\r\n").as_bytes()).expect("memcached reads");
            let mut word = [0; 4];
            direct.read_exact(&mut word).expect("memcached answers");
            assert!(word == *b"HD\r\n" || word == *b"EN\r\n", "{}", word.escape_ascii());
            word == *b"HD\r\n"
        })
        .collect();
    let dead = is_dead.iter().filter(|dead| **dead).count();
    assert!(dead > 0 && dead < keys.len(), "{dead} of the keys live on one of the four servers");
    servers.remove(DEAD).kill();

    let alive = found(keys.iter().zip(&is_dead).filter(|(_, dead)| !**dead).map(|(key, _)| key));
    for _ in 0..3 {
        exchange(&mut client, all.as_bytes(), alive.as_bytes());
    }
    let (lost, _) = keys.iter().zip(&is_dead).find(|(_, dead)| **dead).expect("there is one");
    exchange(&mut client, format!("get {lost}\r\n").as_bytes(), b"SERVER_ERROR backend unavailable\r\n");
    proxy.drained();
}

/// Sets a value of this length, reads it, and asks for something else, in one go; all that comes back.
fn stored_and_read(address: SocketAddr, length: usize) -> Vec<u8> {
    let mut client = connect(address);
    let mut bytes = format!("set k 3 0 {length}\r\n").into_bytes();
    bytes.resize(bytes.len() + length, b'v');
    bytes.extend_from_slice(b"\r\nget k\r\nget no-such-key\r\nquit\r\n");
    let mut writer = client.try_clone().expect("a socket can be shared");
    let sent =
        std::thread::spawn(move || writer.write_all(&bytes).expect("all is read, also what is refused"));
    let mut got = Vec::new();
    client.read_to_end(&mut got).expect("it ends cleanly");
    sent.join().expect("the writer does not panic");
    got
}

/// Returns the expected result of `stored_and_read` for a value that is kept, or refused.
fn outcome(length: usize, is_kept: bool) -> Vec<u8> {
    if !is_kept {
        return b"SERVER_ERROR object too large for cache\r\nEND\r\nEND\r\n".to_vec();
    }
    format!("STORED\r\nVALUE k 3 {length}\r\n{}\r\nEND\r\nEND\r\n", "v".repeat(length)).into_bytes()
}

/// Whether two long replies are the same, without printing them.
fn same(got: &[u8], expected: &[u8], what: &str) {
    let at = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    let from = |bytes: &[u8]| bytes[at.min(bytes.len())..].iter().take(80).copied().collect::<Vec<_>>();
    assert!(
        got == expected,
        "{what}: {} bytes, {} expected; they differ at {at}: `{}`, `{}` expected",
        got.len(),
        expected.len(),
        from(got).escape_ascii(),
        from(expected).escape_ascii()
    );
}

/// M9: what is too large is refused, its bytes swallowed, and the value it was to replace is served no longer.
#[test]
fn key_value_server_accepts_values_up_to_its_limit() {
    let server = service("key_value_server", None, &[]);
    for length in [0, 1, 14_000, 1 << 14, (1 << 14) + 1, MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1] {
        let got = stored_and_read(server.address, length);
        same(&got, &outcome(length, length <= MEBIBYTE), &format!("{length} bytes"));
    }
    refuses_lengths_that_are_none(server.address);
    server.drained();
}

/// One `get` gives as many values as one rule may build; then the server's own words end it, and the connection goes
/// on.
#[test]
fn oversized_multi_get_ends_with_an_error_after_complete_values() {
    const VALUES: usize = 8;
    let server = service("key_value_server", None, &[]);
    let mut client = connect(server.address);
    let value = "v".repeat(MEBIBYTE);
    for n in 0..VALUES {
        exchange(&mut client, format!("set k{n} 0 0 {MEBIBYTE}\r\n{value}\r\n").as_bytes(), b"STORED\r\n");
    }
    for count in [1, 3, VALUES] {
        let keys: String = (0..count).map(|n| format!(" k{n}")).collect();
        client.write_all(format!("get{keys}\r\nget none\r\n").as_bytes()).expect("the server reads");
        let mut found = 0;
        let mut next = line(&mut client);
        while next.starts_with("VALUE") {
            assert_eq!(next, format!("VALUE k{found} 0 {MEBIBYTE}\r\n"));
            let mut data = vec![0; MEBIBYTE + 2];
            client.read_exact(&mut data).expect("the value follows");
            assert!(data[..MEBIBYTE].iter().all(|byte| *byte == b'v') && data.ends_with(b"\r\n"));
            found += 1;
            next = line(&mut client);
        }
        let is_whole = found == count;
        assert!(found >= 3.min(count), "{found} of {count} values");
        let end = if is_whole { "END\r\n" } else { "SERVER_ERROR out of memory writing get response\r\n" };
        assert_eq!(next, end, "{found} of {count}");
        assert_eq!(line(&mut client), "END\r\n", "the next request has its own answer");
    }
    server.drained();
}

/// A line of what a server sends, byte by byte: what follows it stays where it is.
fn line(client: &mut TcpStream) -> String {
    String::from_utf8(read_until(client, b"\n")).expect("lines are text")
}

#[test]
fn text_proxy_forwards_values_of_every_size() {
    let backend = Memcached::start();
    let proxy = text_proxy(&[backend.address], &[]);
    for length in [0, 1, 4096, 4097, 14_000, 1 << 14, (1 << 14) + 1, MEBIBYTE - 1024, MEBIBYTE, MEBIBYTE + 1]
    {
        let got = stored_and_read(proxy.address, length);
        same(&got, &outcome(length, length < MEBIBYTE), &format!("{length} bytes"));
    }
    refuses_lengths_that_are_none(proxy.address);
    proxy.drained();
}

/// Lengths that no value can have; the connection understands what comes next.
fn refuses_lengths_that_are_none(address: SocketAddr) {
    for length in ["2147483648", "-1", "99999999999"] {
        let mut client = connect(address);
        let set = format!("set k 0 0 {length}\r\n");
        exchange(&mut client, set.as_bytes(), b"CLIENT_ERROR bad command line format\r\n");
        exchange(&mut client, b"get no-such-key\r\n", b"END\r\n");
    }
}

/// Returns the output of redis-cli.
fn redis_cli(address: SocketAddr, args: &[&str]) -> String {
    let port = address.port().to_string();
    let mut cli = Command::new("redis-cli");
    let (status, stdout, stderr) =
        captured(output(cli.args(["-h", "127.0.0.1", "-p", &port]).args(args), REDIS_TOOLS));
    // Its status tells whether the answer was an error.
    assert!(status >= 0 && stderr.is_empty(), "redis-cli {args:?}: {status}\n{stderr}");
    stdout
}

/// Three servers behind one address, and the service before them.
fn three_shards() -> (Vec<Server>, Service) {
    let shards: Vec<Server> = (0..3).map(|_| Redis::start()).collect();
    let addresses: Vec<SocketAddr> = shards.iter().map(|shard| shard.address).collect();
    let sharding = service("redis_sharding", Some(("shards", &addresses)), &["--workers", "2"]);
    (shards, sharding)
}

#[test]
fn three_redis_shards_answer_as_one_server() {
    let (shards, sharding) = three_shards();
    let one = Redis::start();
    let words: Vec<String> = (0..30).map(|n| format!("k{n}")).collect();
    let keys: Vec<&str> = words.iter().map(String::as_str).collect();
    let pairs: Vec<&str> = keys.iter().flat_map(|key| [*key, *key]).collect();
    let commands: [&[&str]; 14] = [
        &["set", "alone", "value"],
        &["get", "alone"],
        &["get", "nothing"],
        &[&["mset"], pairs.as_slice()].concat(),
        &[&["mget", "nothing"], keys.as_slice(), &["alone"]].concat(),
        &[&["exists", "nothing", "alone"], keys.as_slice()].concat(),
        &["lpush", "list", "a", "b", "c"],
        &["lrange", "list", "0", "-1"],
        &["get", "list"],
        &["incr", "alone"],
        &[&["touch"], keys.as_slice()].concat(),
        &[&["del", "nothing"], keys[..20].as_ref()].concat(),
        &[&["unlink"], keys.as_slice()].concat(),
        &[&["exists"], keys.as_slice()].concat(),
    ];
    for command in commands {
        let expected = redis_cli(one.address, command);
        assert_eq!(redis_cli(sharding.address, command), expected, "{command:?}");
        if command[0] == "mset" {
            for shard in &shards {
                assert_ne!(redis_cli(shard.address, &["dbsize"]), "0\n", "every shard has some of the keys");
            }
        }
    }
    for refused in [["multi"].as_slice(), &["subscribe", "news"], &["blpop", "list", "1"]] {
        let reply = redis_cli(sharding.address, refused);
        let expected = format!("ERR '{}' cannot be served by several servers", refused[0]);
        assert_eq!(reply.trim_end(), expected);
    }
    assert_eq!(redis_cli(sharding.address, &["get", "alone"]), "value\n", "it goes on after refusals");
    sharding.drained();
}

#[test]
fn redis_benchmark_finds_no_errors() {
    let (_shards, sharding) = three_shards();
    let port = sharding.address.port().to_string();
    for pipelined in ["1", "16"] {
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.args(["-h", "127.0.0.1", "-p", &port, "-t", "set,get", "-n", "5000", "-r", "1000"]);
        let (status, stdout, stderr) =
            captured(output(benchmark.args(["-c", "20", "-P", pipelined, "--csv"]), REDIS_TOOLS));
        assert_eq!(status, 0, "{stdout}\n{stderr}");
        assert!(stdout.contains("\"SET\",") && stdout.contains("\"GET\","), "{stdout}\n{stderr}");
        assert!(!stdout.contains("Error") && !stderr.contains("Error"), "{stdout}\n{stderr}");
    }
    sharding.drained();
}

/// Runs `flick load` for a moment without a warm-up, and returns its results.
fn loaded(url: &str, extra: &[&str]) -> Value {
    let args = [&["load", url, "--duration", "150ms", "--warm-up", "0", "--json"], extra].concat();
    let (status, stdout, stderr) = run(&args);
    assert_eq!(status, 0, "{url} {extra:?}: {stderr}{stdout}");
    let found: Value = serde_json::from_str(&stdout).expect("the results are JSON");
    assert!(found["replies"].as_u64() > Some(0), "{found}");
    assert_eq!(found["misses"], 0, "every key was written: {found}");
    found
}

/// Sum of figures that a server reports as `NAME<separator>NUMBER` lines.
fn reported(text: &[u8], names: &[&str]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let figure = |name: &&str| {
        let rest = text.split(*name).nth(1).unwrap_or_else(|| panic!("no `{name}` in\n{text}"));
        rest.lines().next().and_then(|number| number.trim().parse::<u64>().ok()).expect("a number")
    };
    names.iter().map(figure).sum()
}

#[test]
fn flick_load_counts_the_requests_that_memcached_counts() {
    const KEYS: u64 = 500;
    let uniform: &[&str] = &["--protocol", "text", "--pipeline", "4"];
    let etc: &[&str] = &[
        "--protocol",
        "binary",
        "--key-size",
        "etc",
        "--value-size",
        "etc",
        "--key-order",
        "zipf",
        "--rate",
        "5k",
        "--gaps",
        "etc",
    ];
    let alone: &[&str] = &["--protocol", "meta", "--connection-per-request", "--get-ratio", "0.5"];
    for extra in [uniform, etc, alone] {
        let server = Memcached::start();
        let url = format!("memcached://{}", server.address);
        let found = loaded(&url, &[extra, &["--keys", "500", "--threads", "2"]].concat());
        let mut client = connect(server.address);
        client.write_all(b"stats\r\n").expect("it reads");
        let stats = read_until(&mut client, b"END\r\n");
        let asked = reported(&stats, &["STAT cmd_get ", "STAT cmd_set "]);
        assert_eq!(Some(asked - KEYS), found["replies"].as_u64(), "{extra:?}: {found}");
        let missed = reported(&stats, &["STAT get_misses "]);
        assert_eq!(missed, 0, "{extra:?}");
    }
}

#[test]
fn flick_load_counts_the_commands_that_redis_counts() {
    let server = Redis::start();
    let url = format!("redis://{}", server.address);
    let found = loaded(&url, &["--keys", "500", "--value-size", "0-2000", "--pipeline", "8", "--seed", "7"]);
    let text = redis_cli(server.address, &["info", "commandstats"]);
    let calls =
        |name: &str| reported(text.replace(',', "\n").as_bytes(), &[&format!("cmdstat_{name}:calls=")]);
    assert_eq!(Some(calls("get") + calls("set") - 500), found["replies"].as_u64(), "{found}");
    assert!(calls("set") > 500, "a tenth of the load writes: {text}");
}

#[test]
fn flick_load_finds_a_rate_within_its_bound() {
    let server = Memcached::start();
    let url = format!("memcached://{}", server.address);
    let found = &["--search", "p50:5s", "--duration", "60ms", "--warm-up", "0", "--json"];
    let (status, stdout, stderr) = run(&[&["load", &url], &found[..]].concat());
    assert_eq!(status, 0, "{stderr}");
    let found: Value = serde_json::from_str(&stdout).expect("the results are JSON");
    let peak = found["trials"][0]["replies_per_second"].as_f64().expect("the closed loop");
    let best = found["best"]["rate_per_second"].as_f64().expect("a rate is found");
    assert!(best > 0.0 && best <= peak, "{found}");
}

/// An agent of `flick load` on a free port.
struct Agent {
    _child: OwnedChild,
    address: String,
}

impl Agent {
    fn start() -> Self {
        let mut command = common::flick();
        command.args(["load", "agent", "--listen", "127.0.0.1:0"]).stdout(std::process::Stdio::piped());
        let mut child = OwnedChild(command.spawn().expect("the tool starts"));
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("it can be read");
        let address = line.trim().strip_prefix("agent at ").expect("it says where it listens").to_owned();
        Self { _child: child, address }
    }
}

#[test]
fn agents_of_flick_load_ask_beside_their_master() {
    let (server, agents) = (Memcached::start(), [Agent::start(), Agent::start()]);
    let url = format!("memcached://{}", server.address);
    let both = format!("{},{}", agents[0].address, agents[1].address);
    let found = loaded(&url, &["--agents", &both, "--keys", "500", "--rate", "5k", "--measure-rate=400"]);
    let replies = |found: &Value| found["replies"].as_u64().expect("a number");
    let asked: Vec<u64> =
        found["agents"].as_array().expect("agents").iter().map(|it| replies(&it["results"])).collect();
    assert_eq!(asked.len(), 2, "{found}");
    // 2,300 a second for 150 ms each, from a Poisson process.
    assert!(asked.iter().all(|asked| (200..600).contains(asked)), "{asked:?}");
    let mut client = connect(server.address);
    client.write_all(b"stats\r\n").expect("it reads");
    let counted = reported(&read_until(&mut client, b"END\r\n"), &["STAT cmd_get ", "STAT cmd_set "]);
    assert_eq!(counted, 500 + replies(&found) + asked.iter().sum::<u64>(), "{found}");
    // A signal to the master ends the loads of its agents, whose results it prints.
    let whole = ["--duration", "60s", "--warm-up", "0"];
    let args = [&["load", &url, "--agents", &both, "--json", "--keys", "500"][..], &whole].concat();
    let mut command = common::flick();
    command.args(args).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let master = command.spawn().expect("the tool starts");
    wait::until("the load to begin", || {
        client.write_all(b"stats\r\n").expect("it reads");
        let stats = read_until(&mut client, b"END\r\n");
        (reported(&stats, &["STAT cmd_get ", "STAT cmd_set "]) > counted + 1_000).then_some(())
    });
    common::peers::signal(master.id(), "INT");
    let (status, stdout, stderr) = captured(master.wait_with_output().expect("our own child"));
    assert_eq!(status, 0, "{stderr}");
    let found: Value = serde_json::from_str(&stdout).expect("the results are JSON");
    assert!(found["stopped"] == true && found["agents"][1]["results"]["stopped"] == true, "{found}");
    // An agent serves the next master, and says why it cannot.
    let gone = common::peers::free_address();
    let (status, _, stderr) = run(&["load", &url, "--agents", &gone.to_string(), "--keys", "5"]);
    assert!(status == 1 && stderr.contains("Connection refused"), "{stderr}");
    drop(loaded(&url, &["--agents", &agents[0].address, "--keys", "500"]));
}

#[test]
fn flick_load_says_what_is_wrong() {
    let server = Memcached::start();
    let (here, nowhere) = (server.address, common::peers::free_address());
    for (url, extra, status, why) in [
        (format!("http://{nowhere}/"), &[][..], 1, "Connection refused"),
        ("http://a.invalid/".to_owned(), &[], 1, "cannot resolve `a.invalid`"),
        (format!("redis://{here}"), &[], 1, "could not write 10000 keys"),
        (format!("http://{here}"), &["--duration", "50ms", "--warm-up", "0"], 1, "went wrong"),
        (format!("http://{here}"), &["--keys", "5"], 2, "a page has no key"),
        (format!("memcached://{here}"), &["--gaps", "etc"], 2, "add --rate"),
        ("https://a".to_owned(), &[], 2, "TLS is not supported"),
    ] {
        let (exit, stdout, stderr) = run(&[&["load", &url], extra].concat());
        assert_eq!(exit, status, "{url}: {stderr}{stdout}");
        assert!(stderr.contains(why), "{url}: {stderr}");
    }
}

#[test]
fn packet_counter_forwards_a_capture_unchanged() {
    const PACKETS: u32 = 300;
    let sink = Sink::start();
    let counter = service("packet_counter", Some(("next", &[sink.address])), &["--workers", "1"]);
    let capture = capture(PACKETS);
    let mut client = connect(counter.address);
    client.write_all(&capture.bytes).expect("the service reads");
    client.shutdown(Shutdown::Write).expect("the connection is there");
    wait::until("the capture to arrive", || (sink.len() >= capture.bytes.len()).then_some(()));
    let log = counter.drained();
    same(&sink.bytes(), &capture.bytes, "the capture");
    let totals = format!("packets {PACKETS}, octets {}, cut_short {}", capture.octets, capture.cut_short);
    assert!(log.contains(&totals), "no `{totals}` in\n{log}");
}

/// A relay before a listener of the test, the ends of one connection through it, and what they say to each other.
fn relayed() -> (Service, TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let relay = service("tcp_relay", Some(("server", &[address])), &[]);
    let mut client = connect(relay.address);
    client.write_all(b"hello").expect("the relay reads");
    let (mut server, _) = listener.accept().expect("the relay connects");
    server.set_read_timeout(Some(wait::WAIT_MAX)).expect("the time is not zero");
    let mut hello = [0; 5];
    server.read_exact(&mut hello).expect("the relay passes on");
    assert_eq!(&hello, b"hello");
    (relay, client, server)
}

/// Bytes of both directions in the tests of the relay: what does not fit into anybody's buffers.
fn much() -> Vec<u8> {
    (0..3 * MEBIBYTE).map(|n| (n % 251) as u8).collect()
}

/// The client says much and ends its direction; the server hears all of it and its end, then answers as much.
#[test]
fn relay_forwards_a_half_close_and_the_answer_after_it() {
    let (relay, mut client, mut server) = relayed();
    let mut writer = client.try_clone().expect("a socket can be shared");
    let speaker = std::thread::spawn(move || {
        writer.write_all(&much()).expect("the relay reads");
        writer.shutdown(Shutdown::Write).expect("the connection is there");
    });
    same(&read_all(&mut server), &much(), "to the server");
    speaker.join().expect("the client does not panic");
    let answerer = std::thread::spawn(move || server.write_all(&much()).expect("the relay reads"));
    same(&read_all(&mut client), &much(), "to the client");
    answerer.join().expect("the server does not panic");
    relay.drained();
}

/// The server's end is the session's: the client gets all that was said before it.
#[test]
fn relay_closes_after_the_server_and_the_last_byte() {
    let (relay, mut client, mut server) = relayed();
    let answerer = std::thread::spawn(move || {
        server.write_all(&much()).expect("the relay reads");
        server.shutdown(Shutdown::Write).expect("the connection is there");
        read_all(server)
    });
    same(&read_all(&mut client), &much(), "to the client");
    drop(client);
    same(&answerer.join().expect("the server does not panic"), b"", "to the server");
    relay.drained();
}
