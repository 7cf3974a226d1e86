//! Message counts of the edges of the task graph: with `ask`, with several tasks that send to one channel, over a
//! reload, and for merges.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use super::common::hadoop::pair;
use super::common::peers::Memcached;
use super::common::service::{Service, read_all};
use super::common::wait::{self, WAIT_MAX};
use super::common::{Scratch, client};
use super::{ask, get, metrics, tcp};

/// Sends gets by `ask`, forwards everything else, and notifies a backend when a client disconnects.
const SPREAD: &str = r#"
use memcached_text

type command: record
  verb  : string<64>

type reply: record
  code : uint8

proc Spread: (command/reply client, [reply/command] backends)
  | backends => client
  | client => serve(client, backends)
  except closed client:
    command{wire = "version\r\n"} => backends[0]

fun serve: (-/reply client, [reply/command] backends, req: command) -> ()
  if req.verb == "get":
    let r = ask backends[0] with req
    r => client
  else: req => backends[0]
"#;

/// Counts by edge, as `client => -> backends[] asks`.
type Edges = BTreeMap<String, u64>;

/// The edges of `/api/state`, and those of the metrics.
fn edges(admin: SocketAddr) -> [Edges; 2] {
    let (status, text) = get(tcp(admin), "/api/state", "");
    assert_eq!(status, 200, "{text}");
    let state: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let graph = &state["services"][0]["graph"];
    let name = |task: &serde_json::Value| {
        let at = task.as_u64().expect("edges have ends") as usize;
        graph["tasks"][at]["name"].as_str().expect("tasks have names").to_owned()
    };
    let label = |from: &str, to: &str, kind: &str| format!("{from} -> {to} {kind}");
    let shown = graph["edges"].as_array().expect("a graph has edges").iter().filter_map(|edge| {
        let kind = edge["kind"].as_str().expect("edges have kinds");
        Some((label(&name(&edge["from"]), &name(&edge["to"]), kind), edge["count"].as_u64()?))
    });
    let shown = shown.collect();
    let seen = metrics(admin);
    let texts = seen.samples("flick_edge_messages_total").map(|sample| {
        let of = |wanted: &str| {
            let found = sample.labels.iter().find(|(label, _)| label == wanted);
            found.map(|(_, value)| value.as_str()).expect("an edge has that label")
        };
        (label(of("from"), of("to"), of("kind")), sample.value as u64)
    });
    [shown, texts.collect()]
}

/// Waits until these are all edges, with these counts.
fn check(admin: SocketAddr, expected: &[(&str, u64)]) {
    let expected: Edges = expected.iter().map(|(edge, count)| ((*edge).to_owned(), *count)).collect();
    let expected = [expected.clone(), expected];
    let mut last = Default::default();
    let deadline = std::time::Instant::now() + WAIT_MAX / 2;
    wait::until("the edges to be counted", || {
        last = edges(admin);
        (last == expected || std::time::Instant::now() > deadline).then_some(())
    });
    assert_eq!(last, expected);
}

#[test]
fn edges_count_asks_and_sends_of_several_tasks() {
    let memcached = Memcached::start();
    let scratch = Scratch::new("admin-edges");
    let program = scratch.write("spread.flick", SPREAD);
    let connect = format!("backends={}", memcached.address);
    let path = program.to_str().expect("the path is UTF-8");
    let args = ["run", path, "--listen", "client=127.0.0.1:0", "--connect", &connect, "--admin", "0"];
    let service = Service::start(&args);
    let admin = service.admin();
    let mut stream = client::connect(service.address);
    (0..3).for_each(|_| ask(&mut stream, "get key\r\n", "END\r\n"));
    (0..2).for_each(|_| ask(&mut stream, "version\r\n", "\r\n"));
    let expected = |times: u64, left: u64| {
        [
            ("client -> client => sends", 5 * times),
            ("client => -> backends[] asks", 3 * times),
            ("client => -> backends[] sends", 2 * times),
            ("client => -> client sends", 3 * times),
            ("backends[] -> backends[] => sends", 2 * times),
            ("backends[] => -> client sends", 2 * times),
            ("except closed client -> except closed client: sends", left),
            ("except closed client: -> backends[] sends", left),
        ]
    };
    check(admin, &expected(1, 0));
    drop(stream);
    check(admin, &expected(1, 1));
    service.signal("HUP");
    wait::until("the reload", || (metrics(admin).sum("flick_config_generation") == 2.0).then_some(()));
    let mut stream = client::connect(service.address);
    (0..3).for_each(|_| ask(&mut stream, "get key\r\n", "END\r\n"));
    (0..2).for_each(|_| ask(&mut stream, "version\r\n", "\r\n"));
    check(admin, &expected(2, 1));
    service.drained();
}

#[test]
fn edges_of_a_merge_count_elements() {
    let reducer = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let connect = format!("reducer={}", reducer.local_addr().expect("it is bound"));
    let program = "examples/hadoop_wordcount/hadoop_wordcount.flick";
    let args = ["run", program, "--listen", "mappers=127.0.0.1:0x2", "--connect", &connect, "--admin", "0"];
    let service = Service::start(&args);
    let admin = service.admin();
    for words in [["a", "b", "c"], ["b", "c", "d"]] {
        let stream: Vec<u8> = words.iter().flat_map(|word| pair(word.as_bytes(), b"1")).collect();
        let mut mapper = TcpStream::connect(service.address).expect("the service listens");
        mapper.write_all(&stream).expect("it reads");
        mapper.shutdown(Shutdown::Write).expect("it is connected");
        // The service closes it when the merge is complete.
        std::thread::spawn(move || mapper.read(&mut [0]));
    }
    let (result, _) = reducer.accept().expect("the service connects");
    assert!(!read_all(result).is_empty(), "there are words");
    check(admin, &[("mappers[] -> foldt on mappers[] sends", 6), ("foldt on mappers[] -> reducer sends", 4)]);
    service.drained();
}
