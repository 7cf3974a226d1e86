//! The load against the embedded store and against misbehaving servers: it must count exactly what happened.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use flick_load::binary::{HEADER_BYTES, Header, MAGIC_RESPONSE, Opcode, Status};
use flick_load::load::{self, KeySize, LoadConfig, LoadCounts, LoadProtocol, LoadReport, ValueSize};
use flick_load::store::{EmbeddedStore, StoreConfig};

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Fills a fresh store and runs a `change`d load against it; every request must get the right reply.
#[track_caller]
fn check(change: impl FnOnce(LoadConfig) -> LoadConfig) -> LoadReport {
    let store = EmbeddedStore::start(any_port()).expect("a store starts on a free port");
    let config = change(LoadConfig { keys: 500, requests: Some(20_000), ..LoadConfig::new(store.addr()) });
    load::populate(&config).expect("every key is written");
    let report = load::run(config.clone()).expect("the load runs");
    let asked = config.requests.expect("the load has an end");
    assert_eq!(report.first_wrong, None);
    let LoadCounts { connects, sent_bytes, received_bytes, .. } = report.counts;
    assert_eq!(connects, config.connections as u64);
    assert!(sent_bytes > asked * 24 && received_bytes > asked * 24, "each has a header: {report:?}");
    let expected = LoadCounts {
        requests: asked,
        replies: asked,
        replies_total: asked,
        due: if config.rate_per_s.is_some() { asked } else { 0 },
        connects,
        sent_bytes,
        received_bytes,
        ..LoadCounts::default()
    };
    assert_eq!(report.counts, expected);
    assert_eq!(report.faults(), 0);
    assert!(report.latency.p50_us <= report.latency.p99_us && report.latency.p99_us <= report.latency.max_us);
    // The store counts a batch after sending its replies, so the last replies may arrive before they are counted.
    let counted = || store.counters().requests.load(Ordering::Relaxed);
    let until = Instant::now() + Duration::from_secs(5);
    while counted() < asked + config.keys && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(counted(), asked + config.keys);
    store.stop();
    report
}

#[test]
fn closed_loop_gets_every_answer() {
    check(|config| config);
}

#[test]
fn many_connections_on_two_threads_get_every_answer() {
    check(|config| LoadConfig { connections: 101, threads: 2, ..config });
}

#[test]
fn timestamps_separate_the_service_time_from_the_loads_own() {
    let report = check(|config| LoadConfig { stamped: true, connections: 4, depth: 16, ..config });
    // Sixteen replies are read one after the other, and all were there before.
    assert!(report.served.max_us > 0, "{report:?}");
    assert!(report.served.p50_us <= report.latency.p50_us, "{report:?}");
    let report = check(|config| config);
    assert_eq!(report.served.max_us, 0, "no server has asked for stamps");
}

#[test]
fn deep_pipelines_in_small_pieces_get_every_answer() {
    check(|config| LoadConfig {
        connections: 20,
        depth: 100,
        split_writes: true,
        value: ValueSize::Between(0, 300),
        get_ratio: 0.5,
        ..config
    });
}

#[test]
fn values_of_the_largest_size_get_every_answer() {
    check(|config| LoadConfig {
        connections: 4,
        depth: 4,
        keys: 20,
        value: ValueSize::Fixed(1 << 20),
        requests: Some(200),
        ..config
    });
}

#[test]
fn open_loop_gets_every_answer_at_its_rate() {
    let rate = 20_000.0;
    let report = check(|config| LoadConfig { rate_per_s: Some(rate), requests: Some(4_000), ..config });
    assert!(
        report.elapsed >= Duration::from_millis(195),
        "4,000 requests at 20,000/s take 0.2 s: {report:?}"
    );
}

/// Those that a server does not answer, too.
#[test]
fn requests_that_were_due_are_counted() {
    let (rate, duration) = (1_000.0, Duration::from_millis(200));
    let load = |addr| LoadConfig {
        connections: 2,
        threads: 2,
        rate_per_s: Some(rate),
        warmup: Duration::from_millis(50),
        duration: Some(duration),
        drain: Duration::from_millis(50),
        ..LoadConfig::new(addr)
    };
    let store = EmbeddedStore::start(any_port()).expect("a store starts on a free port");
    let (silent, _asked) = silent_server();
    for addr in [store.addr(), silent] {
        let report = load::run(load(addr)).expect("the load runs");
        // One more or less on each thread.
        let tolerance = 4.0 / duration.as_secs_f64();
        assert!((report.due_per_s - rate).abs() <= tolerance, "{report:?}");
    }
}

#[test]
fn misses_are_counted_apart_from_errors() {
    let store = EmbeddedStore::start(any_port()).expect("a store starts on a free port");
    let config = LoadConfig { requests: Some(100), get_ratio: 1.0, ..LoadConfig::new(store.addr()) };
    let report = load::run(config).expect("the load runs");
    assert_eq!((report.replies, report.counts.misses, report.faults()), (100, 100, 0));
}

#[test]
fn misses_of_the_warm_up_were_counted_as_those_of_the_load() {
    let store = EmbeddedStore::start(any_port()).expect("a store starts on a free port");
    let report = load::run(LoadConfig {
        warmup: Duration::from_millis(50),
        duration: Some(Duration::from_millis(100)),
        get_ratio: 1.0,
        ..LoadConfig::new(store.addr())
    });
    let report = report.expect("the load runs");
    assert!(report.counts.replies_total > report.replies, "the warm-up has replies: {report:?}");
    assert_eq!(report.counts.misses, report.replies, "every reply is a miss");
}

#[test]
fn a_lost_store_is_counted_and_reconnected() {
    let store = EmbeddedStore::start(any_port()).expect("a store starts on a free port");
    let config = LoadConfig { keys: 100, reconnect: true, ..LoadConfig::new(store.addr()) };
    let run = load::start(config.clone()).expect("the load starts");
    let progress = run.progress();
    let wait_for = |holds: &dyn Fn(&LoadCounts) -> bool| {
        while !holds(&progress.counts()) {
            std::thread::yield_now();
        }
    };
    wait_for(&|counts| counts.replies > 1_000);
    let config = StoreConfig::new(store.addr());
    store.stop();
    wait_for(&|counts| counts.disconnects == 16 && counts.connect_failures > 0);
    let replies_before = progress.counts().replies;
    let store = EmbeddedStore::start_with(config).expect("the port is free again");
    wait_for(&|counts| counts.replies > replies_before + 1_000);
    run.stop();
    let report = run.wait();
    assert_eq!((report.counts.wrong, report.counts.errors), (0, 0), "{:?}", report.first_wrong);
    assert_eq!(report.counts.requests, report.counts.replies + report.counts.lost);
    store.stop();
}

#[test]
fn a_small_store_refuses_connections_and_keeps_its_bounds() {
    let config = StoreConfig { entries_max: 50, connections_max: 4, ..StoreConfig::new(any_port()) };
    let store = EmbeddedStore::start_with(config).expect("a store starts on a free port");
    let report =
        load::run(LoadConfig { connections: 8, requests: Some(5_000), ..LoadConfig::new(store.addr()) })
            .expect("the load runs");
    assert_eq!(report.counts.wrong, 0, "{:?}", report.first_wrong);
    assert_eq!(report.counts.disconnects, 4);
    assert_eq!(store.counters().refused.load(Ordering::Relaxed), 4);
    assert!(store.counters().evictions.load(Ordering::Relaxed) > 0);
}

/// Serves connections one after the other: `answer` turns each whole binary request into the bytes of its reply.
fn serve_binary(answer: impl Fn(Header) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let addr = listener.local_addr().expect("a bound address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut head = [0; HEADER_BYTES];
            while stream.read_exact(&mut head).is_ok() {
                let header = Header::decode(&head).expect("a whole header");
                let mut body = vec![0; header.body_len as usize];
                if stream.read_exact(&mut body).is_err() || stream.write_all(&answer(header)).is_err() {
                    break;
                }
            }
        }
    });
    addr
}

fn reply(request: Header, status: u16, extras_len: u8, body: &[u8]) -> Vec<u8> {
    let body_len = body.len() as u32;
    let header = Header { magic: MAGIC_RESPONSE, key_len: 0, extras_len, status, body_len, ..request };
    [&header.encode()[..], body].concat()
}

/// Runs ten reads on one connection against a server that answers with `answer`.
fn against(answer: impl Fn(Header) -> Vec<u8> + Send + 'static) -> LoadReport {
    let config = LoadConfig {
        connections: 1,
        requests: Some(10),
        get_ratio: 1.0,
        drain: Duration::from_millis(200),
        ..LoadConfig::new(serve_binary(answer))
    };
    load::run(config).expect("the load runs")
}

#[test]
fn a_value_of_another_key_is_wrong() {
    let report = against(|request| reply(request, 0, 4, &[0; 104]));
    assert_eq!((report.counts.replies, report.counts.wrong, report.counts.lost), (10, 10, 0));
    assert!(report.first_wrong.is_some_and(|why| why.contains("not one that was written")));
}

#[test]
fn an_empty_value_passed_for_that_of_every_key() {
    let report = against(|request| reply(request, 0, 4, &[0; 4]));
    assert_eq!((report.counts.replies, report.counts.wrong, report.counts.lost), (10, 10, 0));
    assert!(report.first_wrong.is_some_and(|why| why.contains("shorter than any that is written")));
}

#[test]
fn a_reply_with_another_opaque_is_wrong_and_its_request_lost() {
    let report =
        against(|request| reply(Header { opaque: request.opaque ^ 0x8000_0000, ..request }, 1, 0, b""));
    assert_eq!((report.counts.replies, report.counts.wrong, report.counts.lost), (0, 1, 1));
}

#[test]
fn a_reply_to_another_operation_is_wrong() {
    let report = against(|request| reply(Header { opcode: Opcode::Set.byte(), ..request }, 0, 0, b""));
    assert_eq!((report.counts.replies, report.counts.wrong), (10, 10));
}

#[test]
fn a_second_reply_to_one_request_is_wrong() {
    let report = against(|request| [reply(request, 1, 0, b""), reply(request, 1, 0, b"")].concat());
    assert!(report.counts.wrong >= 9, "{report:?}");
}

#[test]
fn bytes_that_are_no_reply_end_the_connection() {
    let report = against(|_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    let counts = report.counts;
    assert_eq!((counts.replies, counts.wrong, counts.disconnects, counts.lost), (0, 1, 1, 1));
}

#[test]
fn error_replies_are_counted_by_status() {
    let report = against(|request| reply(request, Status::TemporaryFailure.code(), 0, b"later"));
    assert_eq!((report.counts.replies, report.counts.errors, report.counts.wrong), (10, 10, 0));
    assert_eq!(report.errors_by_status().collect::<Vec<_>>(), [(Status::TemporaryFailure, 10)]);
}

#[test]
fn a_missing_server_counts_as_connect_failures() {
    let addr = TcpListener::bind(any_port()).and_then(|listener| listener.local_addr()).expect("a free port");
    let report =
        load::run(LoadConfig { requests: Some(10), ..LoadConfig::new(addr) }).expect("the load runs");
    assert_eq!((report.replies, report.counts.connect_failures), (0, 16));
    assert!(load::populate(&LoadConfig::new(addr)).is_err());
}

#[test]
fn a_server_that_went_silent_was_shown_with_the_rate_before() {
    let (answered, duration) = (AtomicU64::new(0), Duration::from_millis(300));
    let addr = serve_binary(move |request| match answered.fetch_add(1, Ordering::Relaxed) {
        0..100 => reply(request, 1, 0, b""),
        _ => Vec::new(),
    });
    let report = load::run(LoadConfig {
        connections: 1,
        get_ratio: 1.0,
        duration: Some(duration),
        drain: Duration::from_millis(50),
        ..LoadConfig::new(addr)
    });
    let report = report.expect("the load runs");
    assert_eq!((report.replies, report.counts.lost), (100, 1));
    assert!(report.elapsed >= duration, "{report:?}");
    assert!(report.replies_per_s <= 100.0 / duration.as_secs_f64(), "{report:?}");
}

/// A server that accepts connections, reads what comes and says nothing; it tells when the first bytes have come.
fn silent_server() -> (SocketAddr, mpsc::Receiver<()>) {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let addr = listener.local_addr().expect("a bound address");
    let (sender, asked) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the load connects");
        // The end of the stream, or an error, is the end of the load.
        while stream.read(&mut [0; 1 << 16]).is_ok_and(|len| len > 0) {
            let _ = sender.send(());
        }
    });
    (addr, asked)
}

#[test]
fn silent_server_fails_the_writing_of_keys_after_the_limit() {
    let (addr, _asked) = silent_server();
    let limit = Duration::from_millis(250);
    let begun = Instant::now();
    let error = load::populate_unless(&LoadConfig::new(addr), limit, pause).expect_err("no reply comes");
    assert_eq!(error.to_string(), format!("could not write 10000 keys to {addr}: no reply for 0.25 s"));
    assert!(begun.elapsed() >= limit);
}

#[test]
fn server_that_takes_no_connection_kept_the_writing_of_keys_waiting() {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let addr = listener.local_addr().expect("a bound address");
    rustix::net::listen(&listener, 0).expect("it listens already");
    // The kernel drops what connects beyond the backlog.
    let connect = || TcpStream::connect_timeout(&addr, Duration::from_millis(200));
    let backlog: Vec<TcpStream> = std::iter::from_fn(|| connect().ok()).take(64).collect();
    assert!((1..64).contains(&backlog.len()), "{}", backlog.len());
    let limit = Duration::from_millis(250);
    let error = load::populate_unless(&LoadConfig::new(addr), limit, pause).expect_err("it cannot connect");
    assert!(error.to_string().ends_with(": no connection for 0.25 s"), "{error}");
}

#[test]
fn stop_ends_the_writing_of_keys_without_waiting_for_replies() {
    let (addr, asked) = silent_server();
    let long = Duration::from_secs(600);
    let begun = Instant::now();
    let stop = || asked.recv_timeout(Duration::from_millis(1)).is_ok();
    let stopped = load::populate_unless(&LoadConfig::new(addr), long, stop).expect_err("it is stopped");
    assert_eq!(stopped.kind(), std::io::ErrorKind::Interrupted);
    assert!(begun.elapsed() < long, "it has waited for replies");
}

/// Waits a moment, and lets the load go on.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(1));
    false
}

/// Answers the text protocol as a server with one item per connection would: the last one that was set.
fn serve_text(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut stream, mut line, mut item) = (stream, String::new(), (String::new(), Vec::new()));
    while reader.read_line(&mut line)? > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "set" {
            let mut value = vec![0; words[4].parse::<usize>().map_err(std::io::Error::other)? + 2];
            reader.read_exact(&mut value)?;
            item = (words[1].to_owned(), value);
            stream.write_all(b"STORED\r\n")?;
        } else if words[1] == item.0 {
            stream.write_all(format!("VALUE {} 0 {}\r\n", item.0, item.1.len() - 2).as_bytes())?;
            stream.write_all(&item.1)?;
            stream.write_all(b"END\r\n")?;
        } else {
            stream.write_all(b"END\r\n")?;
        }
        line.clear();
    }
    Ok(())
}

#[test]
fn the_text_protocol_gets_every_answer() {
    let listener = TcpListener::bind(any_port()).expect("a free port");
    let addr = listener.local_addr().expect("a bound address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve_text(stream));
        }
    });
    let config = LoadConfig {
        protocol: LoadProtocol::Text,
        connections: 3,
        depth: 4,
        keys: 3,
        get_ratio: 0.5,
        value: ValueSize::Between(0, 200),
        requests: Some(3_000),
        ..LoadConfig::new(addr)
    };
    load::populate(&config).expect("every key is written");
    let report = load::run(config).expect("the load runs");
    assert_eq!((report.replies, report.faults()), (3_000, 0), "{:?}", report.first_wrong);
    assert!(report.counts.misses > 0 && report.counts.misses < 1_500);
}

#[test]
fn settings_out_of_range_are_refused() {
    let good = LoadConfig { requests: Some(1), ..LoadConfig::new(any_port()) };
    for bad in [
        LoadConfig { connections: 0, ..good.clone() },
        LoadConfig { depth: 1 << 20, ..good.clone() },
        LoadConfig { keys: 1_000_000, key_size: KeySize::Fixed(6), ..good.clone() },
        LoadConfig { get_ratio: 1.5, ..good.clone() },
        LoadConfig { value: ValueSize::Between(2, 1), ..good.clone() },
        LoadConfig { requests: None, ..good },
    ] {
        assert_eq!(load::run(bad).err().map(|error| error.kind()), Some(std::io::ErrorKind::InvalidInput));
    }
}
