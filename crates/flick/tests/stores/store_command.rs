//! `flick store`: all protocols at one address, answered as memcached answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::SystemTime;

use flick_load::binary::Opcode;

use super::{connect, has_every_capability, read_until};
use crate::common::client::{ask, reply, request};
use crate::common::peers::{Memcached, output};
use crate::common::service::{Service, seen};
use crate::common::{captured, run, wait};
use crate::stores::{exchange, service};

/// Meta commands and those of managers, `KEY` of which is replaced by the CAS value of that key. Left out is where
/// `docs/limitations.md` says that the answers differ.
const COMMANDS: &str = include_str!("meta_commands.txt");

/// The store at a free port.
pub fn store(extra: &[&str]) -> Service {
    Service::start(&[&["store", "--listen", "127.0.0.1:0", "--workers", "2"], extra].concat())
}

/// Replies up to that of `version`, with the CAS values left out. (memcached answers `mn` before some errors that it
/// has not sent yet.)
fn answer(client: &mut TcpStream, command: &str) -> String {
    client.write_all(format!("{command}version\r\n").as_bytes()).expect("the server reads");
    let line = || String::from_utf8(read_until(client, b"\n")).expect("values here are text");
    let text: String =
        std::iter::repeat_with(line).take_while(|line| !line.starts_with("VERSION ")).collect();
    let masked = |word: &str| {
        let number = word.trim_end().trim_start_matches("cas=").trim_start_matches('c');
        let is_cas = number.len() < word.trim_end().len() && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_size = word.starts_with("size=");
        if is_size || is_cas { word.replace(|char: char| char.is_ascii_digit(), "") } else { word.to_owned() }
    };
    text.split_inclusive([' ', '\n']).map(masked).collect()
}

/// The CAS value of a key.
pub fn cas_value(client: &mut TcpStream, key: &str) -> u64 {
    client.write_all(format!("mg {key} c\r\n").as_bytes()).expect("the server reads");
    let line = String::from_utf8(read_until(client, b"\n")).expect("a line");
    let word = line.split_whitespace().nth(1).and_then(|word| word.strip_prefix('c'));
    let number = word.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("`{key}` has no CAS value: {line}"))
}

/// A line of the list as it is sent: `@(KEY)` is the CAS value of a key, `@-(KEY)` one less.
fn spelled(client: &mut TcpStream, line: &str) -> String {
    let text = line.replace("\\r\\n", "\r\n") + "\r\n";
    let Some((before, rest)) = text.split_once('@') else { return text };
    let (sign, rest) = rest.split_once('(').expect("a key follows");
    let (key, after) = rest.split_once(')').expect("a key ends");
    let less = u64::from(sign == "-");
    format!("{before}{}{after}", cas_value(client, key) - less)
}

/// Compares the answers to all lines of the list. Errors: the first one that differs.
fn compare_commands() -> Result<(), String> {
    let (memcached, store) = (Memcached::start(), store(&[]));
    let (mut theirs, mut ours) = (connect(memcached.address), connect(store.address));
    let mut compared = 0;
    for line in COMMANDS.lines().filter(|line| !line.starts_with('#')) {
        let [expected, got] = [&mut theirs, &mut ours].map(|client| {
            let command = spelled(client, line);
            answer(client, &command)
        });
        if got != expected {
            return Err(format!("`{line}`: {got:?}, memcached {expected:?}"));
        }
        compared += 1;
    }
    assert!(compared > 100, "{compared} lines");
    store.drained();
    Ok(())
}

#[test]
fn store_answers_meta_commands_as_memcached_does() {
    // Some answers say seconds, which the two servers' clocks count at different moments.
    let differences: Vec<_> = (0..3).map_while(|_| compare_commands().err()).collect();
    assert!(differences.len() < 3, "{differences:?}");
}

/// Commands that are counted, with what they find and what not.
const COUNTED: &[&str] = &[
    "set k 0 0 1\r\nx",
    "set w 0 0 3\r\nabc",
    "set n 0 0 1\r\n5",
    "get k none",
    "gat 0 k none",
    "touch k 0",
    "touch none 0",
    "mg k v",
    "mg k T60",
    "mg none T60",
    "mg none v",
    "incr n 1",
    "incr w 1",
    "incr none 1",
    "decr n 1",
    "decr w 1",
    "decr none 1",
    "ma n",
    "ma w",
    "ma none",
    "md k C999999",
    "md k I",
    "md none I",
    "md none",
    "delete n",
    "delete none",
];

/// Statistics of commands.
const STATISTICS: &[&str] = &[
    "cmd_get",
    "cmd_set",
    "cmd_touch",
    "get_hits",
    "get_misses",
    "touch_hits",
    "touch_misses",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
];

/// Compares the statistics after these commands.
fn check_statistics(commands: &[&str]) {
    let (memcached, store) = (Memcached::start(), store(&[]));
    let counted = |mut client: TcpStream| -> Vec<String> {
        commands.iter().for_each(|line| drop(answer(&mut client, &format!("{line}\r\n"))));
        let all = answer(&mut client, "stats\r\n");
        let is_one = |line: &&str| line.split(' ').nth(1).is_some_and(|name| STATISTICS.contains(&name));
        let mut lines: Vec<String> = all.lines().filter(is_one).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (expected, got) = (counted(connect(memcached.address)), counted(connect(store.address)));
    assert_eq!(expected.len(), STATISTICS.len(), "{expected:?}");
    assert_eq!(got, expected);
    store.drained();
}

/// A `gat` was a hit of `get`, and a number that was none was a hit of `incr`.
#[test]
fn statistics_counted_touches_as_gets() {
    check_statistics(COUNTED);
}

/// It was a second change of the item.
#[test]
fn ma_with_a_lifetime_was_counted_as_a_touch() {
    check_statistics(&["set n 0 0 1\r\n5", "ma n T60", "ma n MD T60", "ma none T60", "ma n C999999 T60"]);
}

#[test]
fn ma_that_creates_a_counter_was_counted_as_a_set_and_a_miss() {
    check_statistics(&["ma n N0", "ma n N0 T60", "ma m MD N60 T60", "ma m N60 MD"]);
}

/// It was taken for a delay of more than fifty years.
#[test]
fn flush_at_a_time_since_1970_is_due_then() {
    let (memcached, store) = (Memcached::start(), store(&[]));
    for address in [memcached.address, store.address] {
        let mut client = connect(address);
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
        let at = since_1970.as_secs() + 2;
        exchange(
            &mut client,
            format!("set f 0 0 1\r\nx\r\nflush_all {at}\r\n").as_bytes(),
            b"STORED\r\nOK\r\n",
        );
        wait::until("the flush", || answer(&mut client, "get f\r\n").starts_with("END").then_some(()));
    }
    store.drained();
}

/// Numbers around 2^64: what is added, CAS values, item flags, delays of a flush.
const NUMBERS: &str = include_str!("numbers.txt");

/// Also through the proxy: a command that its server refuses must not leave data that the server reads as commands.
#[test]
fn numbers_above_64_bits_do_not_wrap() {
    let (memcached, backend) = (Memcached::start(), Memcached::start());
    let stores = ["native", "interpreter"].map(|engine| store(&["--", "--engine", engine]));
    let proxy = service("memcached_text_proxy", Some(("backends", &[backend.address])), &[]);
    let mut theirs = connect(memcached.address);
    let mut subjects = [stores[0].address, stores[1].address, proxy.address].map(connect);
    let mut compared = 0;
    for line in NUMBERS.lines().filter(|line| !line.starts_with('#')) {
        let command = line.replace("\\r\\n", "\r\n") + "\r\n";
        let expected = answer(&mut theirs, &command);
        let got = subjects.each_mut().map(|client| answer(client, &command));
        let got = got.each_ref().map(String::as_str);
        assert_eq!(got, [expected.as_str(); 3], "`{line}` to the store, interpreted, and through the proxy");
        compared += 1;
    }
    assert!(compared > 50, "{compared} lines");
    proxy.drained();
    stores.into_iter().for_each(|store| drop(store.drained()));
}

/// The connection ended. memcached closes it after 2048 bytes without a line feed.
#[test]
fn unknown_word_of_more_than_64_bytes_ended_the_connection() {
    let (memcached, backend) = (Memcached::start(), Memcached::start());
    let store = store(&[]);
    let proxies = ["memcached_text_proxy", "memcached_cache"]
        .map(|name| service(name, Some(("backends", &[backend.address])), &[]));
    let mut clients = [memcached.address, store.address, proxies[0].address, proxies[1].address].map(connect);
    let words = [64, 65, 100, 2000, 2046].map(|length| "x".repeat(length));
    let behind = [2000, 2001, 2044].map(|length| format!("x {}", "y".repeat(length)));
    let others = [65, 1000].map(|length| format!("  get{}  a b ", "x".repeat(length)));
    for line in words.iter().chain(&behind).chain(&others) {
        let got = clients.each_mut().map(|client| answer(client, &format!("{line}\r\n")));
        assert_eq!(got, ["ERROR\r\n"; 4], "{} bytes to memcached, the store, the proxies", line.len());
    }
    proxies.into_iter().for_each(|proxy| drop(proxy.drained()));
    store.drained();
}

/// The error was about services and their names, of which the user of the store knows nothing.
#[test]
fn store_on_shared_memory_failed_with_an_error_about_its_program() {
    for address in ["shm:store", "127.0.0.1:0,shm:store"] {
        let (status, _, error) = run(&["store", "--listen", address]);
        let expected = "error: the store cannot listen on shm:store, ";
        assert!(status == 2 && error.starts_with(expected) && error.contains("listen on TCP"), "{error}");
    }
}

/// Values that `strtoull` reads as a number, or not.
const STORED: &[&str] = &[
    "\t5",
    "\n5",
    "\x0b5",
    "\x0c5",
    "\r5",
    " \t\n\x0b\x0c\r12345\t9",
    "5\t7",
    "5\x0bx",
    "5\0x",
    "\x005",
    "5x",
    "\t",
    "\x1c5",
    "                    12345",
    "                                                  18446744073709551615",
    "\t18446744073709551616",
    "000000000000000000000000000005",
    "5                                                                 x",
];

/// Only blanks, tabs and line ends could be before it, together with it in 22 bytes.
#[test]
fn stored_number_behind_white_space_was_not_a_number() {
    let memcached = Memcached::start();
    let stores = ["native", "interpreter"].map(|engine| store(&["--", "--engine", engine]));
    let mut clients = [memcached.address, stores[0].address, stores[1].address].map(connect);
    for value in STORED {
        for change in ["incr k 1", "decr k 3", "ma k D7 v"] {
            let command = format!("set k 3 0 {}\r\n{value}\r\n{change}\r\nget k\r\n", value.len());
            let [expected, got @ ..] = clients.each_mut().map(|client| answer(client, &command));
            assert_eq!(got, [expected.clone(), expected], "{value:?}, `{change}`");
        }
    }
    stores.into_iter().for_each(|store| drop(store.drained()));
}

/// A request line of HTTP ends the connection; a command that only looks like one is answered.
#[test]
fn get_in_upper_case_ends_the_connection_only_as_http() {
    let (memcached, store) = (Memcached::start(), store(&[]));
    let mut clients = [memcached.address, store.address].map(connect);
    for line in
        ["GET a", "GET", "POST /", "PUT a b", "DELETE a", "OPTIONS *", "CONNECT a:1", "GET a/HTTP/1.1"]
    {
        let got = clients.each_mut().map(|client| answer(client, &format!("{line}\r\n")));
        assert_eq!(got, ["ERROR\r\n"; 2], "`{line}` to memcached, to the store");
    }
    for line in ["GET / HTTP/1.1", "POST /a HTTP/1.0", "PATCH  /  HTTP/1.1", "GET HTTP/1.1"] {
        let mut client = connect(store.address);
        client.write_all(format!("{line}\r\nversion\r\n").as_bytes()).expect("the server reads");
        let mut got = Vec::new();
        let end = client.read_to_end(&mut got);
        assert!(got.is_empty(), "`{line}` was answered `{}` ({end:?})", got.escape_ascii());
    }
    store.drained();
}

/// memcached stores their low 32 bits.
#[test]
fn item_flags_above_32_bits_are_refused() {
    let store = store(&[]);
    let mut client = connect(store.address);
    for flags in ["4294967296", "9223372036854775808", "18446744073709551616", "99999999999999999999"] {
        let refused = answer(&mut client, &format!("set k {flags} 0 3\r\nmn\r\n\r\nget k\r\n"));
        assert_eq!(refused, "CLIENT_ERROR bad command line format\r\nMN\r\nERROR\r\nEND\r\n", "{flags}");
        let refused = answer(&mut client, &format!("ms k 1 F{flags}\r\nx\r\nmg k v\r\n"));
        assert_eq!(refused, "CLIENT_ERROR bad command line format\r\nEN\r\n", "{flags}");
    }
    store.drained();
}

/// A value of the metrics of a service.
pub fn metric(service: &Service, name: &str) -> u64 {
    let (_, text) = seen(service.admin_address(), "/metrics");
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("no {name} in\n{text}")) as u64
}

/// Connections to an address that several services share stayed in the kernel.
#[test]
fn connections_of_a_proxy_to_the_store_move_to_shared_memory() {
    let options = ["--workers", "1", "--shm", "auto"];
    let store = store(&[&["--"], &options[2..]].concat());
    let proxy = service(
        "memcached_proxy",
        Some(("backends", &[store.address])),
        &[&options[..], &["--admin", "0"]].concat(),
    );
    let mut client = connect(proxy.address);
    let mut number = 0;
    wait::until("the connection to the store to use a ring", || {
        number += 1;
        assert_eq!(ask(&mut client, Opcode::Set, number, b"key", b"value").status, 0);
        (metric(&proxy, "flick_shm_upgraded_connections") > 0).then_some(())
    });
    proxy.drained();
    store.drained();
}

#[test]
fn memccapable_with_the_store() {
    let store = store(&["--memory", "32MiB"]);
    has_every_capability(&store, "-a");
    has_every_capability(&store, "-b");
    store.drained();
}

/// The value of one statistic in the text protocol.
fn statistic(address: SocketAddr, name: &str) -> String {
    let mut client = connect(address);
    client.write_all(b"stats\r\n").expect("the server reads");
    let all = String::from_utf8(read_until(&mut client, b"END\r\n")).expect("text");
    let found = all.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    found.unwrap_or_else(|| panic!("no {name} in {all}")).to_owned()
}

#[test]
fn store_counts_what_every_protocol_did() {
    let store = store(&["--memory", "32MiB"]);
    let mut client = connect(store.address);
    exchange(&mut client, b"set a 0 0 1\r\n1\r\nget a b\r\n", b"STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n");
    exchange(&mut client, b"mg a v\r\nincr b 1\r\ndelete b\r\n", b"VA 1\r\n1\r\nNOT_FOUND\r\nNOT_FOUND\r\n");
    let mut binary = connect(store.address);
    assert_eq!(ask(&mut binary, Opcode::Get, 1, b"a", b"").value, b"1");
    let expected = [
        ("get_hits", "3"),
        ("get_misses", "1"),
        ("cmd_get", "4"),
        ("cmd_set", "1"),
        ("incr_misses", "1"),
        ("delete_misses", "1"),
        ("curr_items", "1"),
        ("limit_maxbytes", "33554432"),
        // One block.
        ("bytes", "96"),
        ("evictions", "0"),
    ];
    for (name, value) in expected {
        assert_eq!(statistic(store.address, name), value, "{name}");
    }
    // The client that asks is the third one; those that asked before may still be closing.
    wait::until("the clients that asked to be gone", || {
        (statistic(store.address, "curr_connections") == "3").then_some(())
    });
    binary.write_all(&request(Opcode::Stat, 2, b"", b"")).expect("the server reads");
    let replies = std::iter::from_fn(|| Some(reply(&mut binary).value));
    let all: Vec<_> = replies.take_while(|value| !value.is_empty()).collect();
    assert!(all.len() > expected.len() && all.contains(&b"33554432".to_vec()), "{all:?}");
    store.drained();
}

/// Items, CAS, counters, many keys, long values, lifetimes and pipelines, as client libraries ask for them.
#[test]
fn client_libraries_with_the_store() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stores/clients.py");
    let libraries = ["pymemcache", "pylibmc-text", "pylibmc-binary"];
    let stores = libraries.map(|_| store(&["--memory", "32MiB"]));
    std::thread::scope(|scope| {
        for (library, store) in libraries.into_iter().zip(&stores) {
            let port = store.address.port().to_string();
            scope.spawn(move || {
                let mut python = Command::new("/usr/bin/python3");
                python.args(["-B", program, library, "127.0.0.1", &port]);
                let (status, stdout, stderr) = captured(output(&mut python, "python3"));
                assert_eq!((status, stdout), (0, format!("{library} ok\n")), "{stderr}");
            });
        }
    });
    stores.into_iter().for_each(|store| drop(store.drained()));
}

/// Addresses in the log of a store, one for each process that listens.
fn addresses(log: &str) -> Vec<&str> {
    let lines = log.lines().filter(|line| line.contains("listening"));
    lines.filter_map(|line| line.split_once("address=")?.1.split_whitespace().next()).collect()
}

#[test]
fn store_at_port_0_has_one_port_for_all_protocols() {
    let store = store(&[]);
    let mut client = connect(store.address);
    exchange(&mut client, b"set a 0 0 1\r\n1\r\nmg a v\r\n", b"STORED\r\nVA 1\r\n1\r\n");
    let mut binary = connect(store.address);
    assert_eq!(ask(&mut binary, Opcode::Get, 1, b"a", b"").value, b"1");
    let address = store.address.to_string();
    let log = store.drained();
    assert_eq!(addresses(&log), [&address, &address], "{log}");
}

/// Commands of each client that deletes or adds the same item.
const DELETES: usize = 3000;

/// Sends commands many times and counts the replies that begin so; each time there are `replies`.
fn counted(address: SocketAddr, command: &str, replies: usize, reply: &str) -> usize {
    let mut client = connect(address);
    let mut writer = client.try_clone().expect("a socket can be shared");
    let all = command.repeat(DELETES);
    let sent = std::thread::spawn(move || writer.write_all(all.as_bytes()).expect("the server reads"));
    let replies =
        (0..DELETES * replies).filter(|_| read_until(&mut client, b"\n").starts_with(reply.as_bytes()));
    let count = replies.count();
    sent.join().expect("the writer does not panic");
    count
}

/// Of two deletes of one item at the same time, by `md` and by `delete`, one finds it.
#[test]
fn item_is_deleted_once() {
    let store = store(&[]);
    let address = store.address;
    let commands = [
        ("add k 0 0 1\r\n1\r\n", "STORED"),
        ("md k\r\n", "HD"),
        ("md k\r\n", "HD"),
        ("delete k\r\n", "DELETED"),
    ];
    let clients =
        commands.map(|(command, reply)| std::thread::spawn(move || counted(address, command, 1, reply)));
    let [added, deleted @ ..] = clients.map(|client| client.join().expect("no assertion failed"));
    let left = counted(address, "md k\r\n", 1, "HD");
    assert_eq!(deleted.iter().sum::<usize>() + left, added, "{deleted:?}");
    assert_eq!(statistic(address, "curr_items"), "0", "nothing is left behind");
    store.drained();
}

/// One of two that found no counter added nothing, with the reply `NS`.
#[test]
fn counters_that_several_clients_created_lost_additions() {
    let store = store(&[]);
    let address = store.address;
    // It is deleted as often, so that there is often none.
    let add = move || counted(address, "ma k N600 J1 D1\r\nmd k\r\n", 2, "NS");
    for _ in 0..4 {
        let clients = [(); 4].map(|()| std::thread::spawn(add));
        assert_eq!(clients.map(|client| client.join().expect("no assertion failed")), [0; 4]);
    }
    store.drained();
}
