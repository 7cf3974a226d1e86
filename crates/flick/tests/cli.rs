//! The command line: exit statuses, output and messages.

mod common;

use common::{PROXY, Scratch, run};

/// Runs flick and compares its status; each of `expected` must be in stdout or stderr.
fn check(args: &[&str], status: i32, expected: &[&str]) {
    let (actual, stdout, stderr) = run(args);
    assert_eq!(actual, status, "flick {}\nstdout: {stdout}\nstderr: {stderr}", args.join(" "));
    for text in expected {
        let is_there = stdout.contains(text) || stderr.contains(text);
        assert!(
            is_there,
            "flick {} does not print `{text}`\nstdout: {stdout}\nstderr: {stderr}",
            args.join(" ")
        );
    }
}

#[test]
fn check_prints_a_summary() {
    check(
        &["check", PROXY],
        0,
        &["ok: process `Memcached`", "client: receives cmd, sends cmd", "backends[]"],
    );
}

#[test]
fn check_prints_resource_bounds() {
    let figures = [
        "memory per session",
        "its channels",
        "its views",
        "its state",
        "global state",
        "work per message",
        "memcached_proxy.flick:",
        "largest message",
        "elements of `backends`: at most 1024",
    ];
    check(&["check", PROXY, "--bounds"], 0, &figures);
}

/// A program with a dictionary, `local` state and `ask`s.
const KEEPER: &str = r#"use memcached_binary

global seen: dict<string<250>, int> max 1000 entries

type cmd: record
  key : string

proc Keeper: (cmd/cmd client, [cmd/cmd] backends)
  local last: string<100> := ""
  | client => answer(backends, client)

fun answer: ([cmd/cmd] backends, -/cmd client, req: cmd) -> ()
  if last == "":
    last := req.key[..100]
  seen[req.key] := (seen[req.key] else 0) + 1
  let replies = ask all backends with req timeout 50ms
  switch replies[0] else none:
    some reply: reply => client
    none: ask backends[0] with req => client
"#;

#[test]
fn check_prints_bounds_of_dictionaries_and_asks() {
    let scratch = Scratch::new("keeper");
    let path = scratch.write("keeper.flick", KEEPER);
    let path = path.to_str().expect("the path is UTF-8");
    let figures = [
        "its state             112 B",
        "memory of a suspended rule",
        "its replies",
        "`seen`, 1000 entries: ",
        "asks per message        at most 1, and 1 `ask all`",
        "elements of `backends`: at most 64",
    ];
    check(&["check", path, "--bounds"], 0, &figures);
    let (status, stdout, _) = run(&["check", path, "--bounds", "--json"]);
    assert_eq!(status, 0, "{stdout}");
    for text in [
        r#""asks_per_message_max":1"#,
        r#""array_asks_per_message_max":1"#,
        r#""name":"seen","entries_max":1000"#,
    ] {
        assert!(stdout.contains(text), "`{text}` is not in\n{stdout}");
    }
}

#[test]
fn hottest_line_is_in_the_called_function() {
    let program = "use memcached_binary\n\ntype cmd: record\n  key : string\n\nproc P: (cmd/cmd client)\n  | client => looked() => client\n\nfun looked: (req: cmd) -> (cmd)\n  if far(req.key): req\n  else: req with key = \"a\"\n\nfun far: (key: string<250>) -> (bool)\n  (fold i in 0..90, n = len(key): n + i) > 3\n";
    let scratch = Scratch::new("work");
    let path = scratch.write("work.flick", program);
    check(
        &["check", path.to_str().expect("the path is UTF-8"), "--bounds"],
        0,
        &["work.flick:14: (fold i in 0..90"],
    );
}

#[test]
fn program_above_its_work_budget_does_not_start() {
    let program = "use memcached_binary\n\ntype cmd: record\n  key : string<250>\n\nproc P: (cmd/cmd client)\n  | client => look() => client\n\nfun look: (req: cmd) -> (cmd)\n  for a in 0..1000:\n    for b in 0..1000:\n      if contains(req.key, \"abc\"): log(\"found\")\n  req\n";
    let scratch = Scratch::new("budget");
    let path = scratch.write("budget.flick", program);
    let path = path.to_str().expect("the path is UTF-8");
    let (status, stdout, _) = run(&["check", path, "--bounds", "--max-message-work", "0"]);
    assert_eq!(status, 0, "{stdout}");
    let steps =
        stdout.split("at most ").find_map(|rest| rest.split_once(" steps, an estimated ")).expect("steps");
    // The figure that is refused is the one that is printed, at the line with most of it.
    let title =
        format!("error[E0309]: too much work: one message may take {} steps, the budget is ", steps.0);
    let refused = [&*title, "budget.flick:12:", "`--max-message-work`", "More: flick explain E0309"];
    check(&["check", path], 1, &refused);
    check(&["run", path, "--listen", "client=127.0.0.1:0"], 1, &refused);
    check(&["run", path, "--check", "--listen", "client=127.0.0.1:0", "--max-message-work", "0"], 0, &[]);
}

#[test]
fn streamed_messages_have_no_size() {
    let program = "use http\n\nproc P: (request/response client, [response/request] backends)\n  | backends => client\n  | client => backends[0]\n";
    let scratch = Scratch::new("streamed");
    let path = scratch.write("streamed.flick", program);
    let expected = ["largest message         streamed, 16 KiB at a time"];
    check(&["check", path.to_str().expect("the path is UTF-8"), "--bounds"], 0, &expected);
}

#[test]
fn service_above_max_memory_does_not_start() {
    let listen = "client=127.0.0.1:0";
    let expected = ["may need", "`--max-memory` allows 1 MiB", "network buffers: lower `--buffer-memory`"];
    check(
        &["run", PROXY, "--listen", listen, "--connect", "backends=127.0.0.1:1", "--max-memory", "1MiB"],
        1,
        &expected,
    );
    // Without an address `shm:NAME`, only moved connections need this memory.
    let moved = "and Unix sockets move: lower `--buffer-memory`, or set `--shm pipes`";
    for (mode, address, is_hinted) in
        [("auto", listen, true), ("auto", "client=shm:above-max-memory", false), ("pipes", listen, false)]
    {
        let args = ["run", PROXY, "--listen", address, "--connect", "backends=127.0.0.1:1"];
        let (status, _, stderr) = run(&[&args[..], &["--max-memory", "1MiB", "--shm", mode]].concat());
        assert_eq!((status, stderr.contains(moved)), (1, is_hinted), "{mode}, {address}: {stderr}");
    }
}

#[test]
fn wrong_program_exits_with_1_and_reports_on_stderr() {
    let scratch = Scratch::new("wrong");
    let path = scratch
        .write("wrong.flick", "use memcached_binary\nproc P: (cmd/cmd client)\n  | client => nowhere\n");
    let path = path.to_str().expect("the path is UTF-8");
    let (status, stdout, stderr) = run(&["check", path]);
    assert_eq!((status, stdout.as_str()), (1, ""), "{stderr}");
    for text in ["error[E02", "wrong.flick:3:", "nowhere", "More: flick explain E02"] {
        assert!(stderr.contains(text), "`{text}` is not in\n{stderr}");
    }
    check(&["run", path, "--listen", "client=127.0.0.1:0"], 1, &["nowhere"]);
}

#[test]
fn check_prints_json() {
    let (status, stdout, _) = run(&["check", PROXY, "--bounds", "--json"]);
    assert_eq!(status, 0);
    for text in [
        r#""ok":true"#,
        r#""process":"Memcached""#,
        r#""name":"backends","array":true"#,
        r#""steps_per_message_max":"#,
    ] {
        assert!(stdout.contains(text), "`{text}` is not in\n{stdout}");
    }
    let scratch = Scratch::new("json");
    let path = scratch.write("wrong.flick", "proc\n");
    let (status, stdout, stderr) = run(&["check", path.to_str().expect("the path is UTF-8"), "--json"]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    assert!(stdout.contains(r#""ok":false"#) && stdout.contains(r#""severity":"error""#), "{stdout}");
}

#[test]
fn check_of_an_unreadable_file_prints_json() {
    let (status, stdout, stderr) = run(&["check", "nowhere.flick", "--json"]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    assert!(stdout.contains(r#""ok":false"#) && stdout.contains("cannot read nowhere.flick"), "{stdout}");
}

#[test]
fn check_of_wrong_settings_with_json_exited_with_1() {
    let scratch = Scratch::new("json-settings");
    let path = scratch.write("flick.toml", "listen = { client = \"nowhere\" }\n");
    let path = path.to_str().expect("the path is UTF-8");
    check(&["check", path], 2, &["nowhere"]);
    let (status, stdout, stderr) = run(&["check", "--json", path]);
    assert_eq!((status, stderr.as_str()), (2, ""));
    assert!(stdout.contains(r#""ok":false"#) && stdout.contains("nowhere"), "{stdout}");
}

#[test]
fn check_took_one_file_only() {
    let scratch = Scratch::new("several");
    let text_of = |path: std::path::PathBuf| path.to_str().expect("the path is UTF-8").to_owned();
    let wrong = text_of(scratch.write("wrong.flick", "proc\n"));
    let other = text_of(scratch.write("other.flick", "use nothing\n"));
    let settings = text_of(scratch.write("flick.toml", "wrokers = 1\n"));
    let program = common::root().join(PROXY);
    let text = format!(
        "[service]\nprogram = \"{}\"\n[listen]\nclient = \"127.0.0.1:0\"\n[connect]\nbackends = [\"127.0.0.1:1\"]\n[limits]\nmax_connections = 9\n",
        program.display()
    );
    let right = text_of(scratch.write("right.toml", &text));
    let library = "stdlib/memcached_binary.flick";
    let (status, stdout, _) = run(&["check", PROXY, library]);
    assert_eq!(status, 0);
    for expected in [format!("{PROXY}: ok: process `Memcached`\n"), format!("{library}: ok: a library")] {
        assert!(stdout.contains(&expected), "`{expected}` is not in\n{stdout}");
    }
    // All are checked, whichever is wrong.
    let (status, stdout, stderr) = run(&["check", &wrong, &settings, "nowhere.flick", &other, PROXY]);
    assert_eq!(status, 1, "{stderr}");
    assert!(stdout.starts_with(&format!("{PROXY}: ok: process `Memcached`\n")), "{stdout}");
    for expected in ["wrong.flick:1:", "wrokers", "cannot read nowhere.flick", "other.flick:1:"] {
        assert!(stderr.contains(expected), "`{expected}` is not in\n{stderr}");
    }
    let (status, stdout, stderr) =
        run(&["check", "--json", PROXY, &wrong, "nowhere.flick", library, &settings, &right]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    let objects = stdout.lines().map(serde_json::from_str).collect::<Result<Vec<serde_json::Value>, _>>();
    let objects = objects.expect("each line is an object");
    let found = objects.iter().map(|object| (object["file"].as_str(), object["ok"].as_bool()));
    let files = [
        (PROXY, true),
        (&wrong, false),
        ("nowhere.flick", false),
        (library, true),
        (&settings, false),
        (&right, true),
    ];
    assert_eq!(found.collect::<Vec<_>>(), files.map(|(file, is_ok)| (Some(file), Some(is_ok))).to_vec());
    let title = objects[4]["diagnostics"][0]["title"].as_str();
    assert!(title.is_some_and(|title| title.contains("unknown key `wrokers`")), "{stdout}");
    check(&["check", "--bounds", PROXY, &settings], 2, &["not for a settings file"]);
    check(&["check"], 2, &["<FILE>"]);
}

#[test]
fn log_level_that_does_not_exist_silenced_the_log() {
    let args = ["run", PROXY, "--listen", "client=127.0.0.1:0", "--connect", "backends=dns:nowhere:1"];
    for (level, wrong) in [
        ("warning", "`warning`"),
        ("flick_runtime=verbose", "`verbose`"),
        ("flick_runtime", "`flick_runtime`"),
    ] {
        let output = common::flick().args(args).env("FLICK_LOG", level).output().expect("the tool starts");
        let (status, _, stderr) = common::captured(output);
        let expected = format!("FLICK_LOG: {wrong} is no level of the log; the levels are `error`, `warn`");
        assert!(status == 2 && stderr.contains(&expected), "{level}: {status} {stderr}");
    }
}

#[test]
fn unknown_option_suggests_the_one_that_is_spelled_alike() {
    for (option, suggested) in [
        (concat!("--sessions", "_max"), "'--max-connections'"),
        ("--conections-max", ""),
        ("--max_connections", "'--max-connections'"),
        ("--wrokers", "'--workers'"),
        ("--entirely-unknown", ""),
    ] {
        let (status, _, stderr) = run(&["run", PROXY, option, "3"]);
        assert!(status == 2 && stderr.contains(&format!("unexpected argument '{option}'")), "{stderr}");
        assert!(stderr.contains(suggested), "{option}: {stderr}");
        assert_eq!(stderr.contains("a similar argument exists"), !suggested.is_empty(), "{option}: {stderr}");
    }
}

#[test]
fn host_name_as_a_backend_names_dns() {
    let connect = |backend: &str| format!("backends={backend}");
    check(&["run", PROXY, "--connect", &connect("localhost:80")], 2, &["write its address, `127.0.0.1:80`"]);
    check(&["run", PROXY, "--connect", &connect("cache.example:80")], 2, &["`dns:cache.example:80`"]);
}

#[test]
fn explain_prints_the_page_of_a_code() {
    check(&["explain", "e0301"], 0, &["E0301"]);
    check(&["explain", "E9999"], 2, &["no error `E9999`"]);
}

#[test]
fn library_cannot_be_run() {
    let library = "stdlib/memcached_binary.flick";
    check(&["check", library], 0, &["library", "`cmd`"]);
    check(&["run", library], 1, &["no process"]);
}

#[test]
fn missing_file_is_named() {
    check(&["check", "nowhere.flick"], 1, &["cannot read nowhere.flick"]);
    check(&["run", "--config", "nowhere.toml"], 2, &["nowhere.toml"]);
}

#[test]
fn reader_that_is_gone_was_reported_as_an_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut command = common::flick();
    let output = command.args(["explain", "E0301"]).stdout(writer).output().expect("flick starts");
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn wrong_usage_exits_with_2() {
    check(&[], 2, &["Usage"]);
    check(&["chekc", PROXY], 2, &["check"]);
    check(&["run", PROXY, "--listen", "127.0.0.1:1"], 2, &["has no channel", "client=127.0.0.1:11211"]);
    check(&["run", PROXY, "--listen", "client=localhost:1"], 2, &["localhost:1"]);
    check(&["run", PROXY, "--response-timeout", "3"], 2, &["a number and a unit"]);
    check(&["run", PROXY, "--resolver", "8.8.8.8"], 2, &["`8.8.8.8` has no port; write `127.0.0.1:53`"]);
    check(&["run", PROXY, "--workers", "0"], 2, &["the range is 1 to"]);
    check(&["tap", "9900"], 2, &["`9900` is not a connection", "`--admin 9900`"]);
    let both = ["run", PROXY, "--listen", "backends=:1", "--connect", "backends=127.0.0.1:2"];
    check(&both, 2, &["channel `backends` is bound twice; it either listens or connects"]);
    check(&["store", "--memory", "1MiB"], 2, &["`--memory` is at least 16MiB"]);
    check(&["store", "--memory", "53GiB"], 2, &["`--memory` is at most 52GiB"]);
    check(&["store", "--listen", "localhost:1"], 2, &["localhost:1"]);
    check(
        &["store", "--", "--state-dir", "x"],
        2,
        &["does not take `--state-dir`: write `--snapshot` before `--`"],
    );
    check(&["store", "--", "--workes", "1"], 2, &["--workers"]);
}

#[test]
fn settings_without_effect_are_rejected() {
    check(
        &["run", PROXY, "--health-check-expect", "PONG"],
        2,
        &["`--health-check-expect` has no effect", "`--health-check-interval`"],
    );
    check(
        &["run", PROXY, "--reconnect-backoff-min", "2s", "--reconnect-backoff-max", "1s"],
        2,
        &["`--reconnect-backoff-min` of 2s is longer than `--reconnect-backoff-max` of 1s"],
    );
    // Health checks that are turned off are not an error. The missing channels are reported after that check.
    check(
        &["run", PROXY, "--health-check-expect", "PONG", "--health-check-interval", "0"],
        2,
        &["are not bound"],
    );
    check(&["run", PROXY], 2, &["such as `--listen client=ADDRESS --connect backends=ADDRESS,ADDRESS`"]);
    check(&["run", "flick.toml"], 2, &["flick.toml is a settings file", "`flick run --config flick.toml`"]);
    // Backends are ejected by default.
    check(&["run", PROXY, "--outlier-ejection-time", "30s"], 2, &["are not bound"]);
    check(
        &["run", PROXY, "--outlier-min-requests", "30"],
        2,
        &["`--outlier-min-requests` has no effect", "`--outlier-failure-percent`"],
    );
}

#[test]
fn run_without_program_or_settings_file() {
    let scratch = Scratch::new("nothing");
    let output = common::flick().arg("run").current_dir(scratch.path()).output().expect("the tool starts");
    let (status, _, stderr) = common::captured(output);
    assert_eq!(status, 2);
    assert!(stderr.contains("flick.toml") && stderr.contains("flick run FILE"), "{stderr}");
}

#[test]
fn error_of_a_wrong_channel_lists_the_channels() {
    let channels = ["`client`", "`backends`", "receives cmd, sends cmd"];
    let check = |args: &[&str], expected: &str| {
        let mut all = vec!["run", PROXY];
        all.extend_from_slice(args);
        self::check(&all, 2, &[&[expected], channels.as_slice()].concat());
    };
    check(&["--listen", "clients=127.0.0.1:0", "--connect", "backends=127.0.0.1:1"], "no channel `clients`");
    check(&["--listen", "client=127.0.0.1:0"], "channel `backends`");
    check(&[], "are not bound");
}

#[test]
fn channel_has_a_type_for_each_direction() {
    const BALANCER: &str = "examples/http_balancer/round_robin.flick";
    let expected = ["`client` (receives request, sends response)"];
    check(&["run", BALANCER, "--listen", "clients=127.0.0.1:0"], 2, &expected);
    let expected = ["`backends` (array, receives response, sends request)"];
    check(
        &["run", BALANCER, "--listen", "client=127.0.0.1:0", "--connect", "back=127.0.0.1:1"],
        2,
        &expected,
    );
    let scratch = Scratch::new("graph-types");
    let directory = scratch.path().to_str().expect("the path is UTF-8");
    check(&["build", BALANCER, "--emit", "graph", "-o", directory], 0, &["round_robin.dot"]);
    let dot = std::fs::read_to_string(scratch.path().join("round_robin.dot")).expect("the file was written");
    for expected in [
        r"input\nclient\nrequest",
        r"input\nbackends[]\nresponse",
        r"output\nclient\nresponse",
        r"output\nbackends[]\nrequest",
    ] {
        assert!(dot.contains(expected), "{expected} is not in {dot}");
    }
}

#[test]
fn build_prints_every_form() {
    check(&["build", PROXY, "--emit", "ir"], 0, &["parse_request.client", "target_backend"]);
    check(&["build", PROXY, "--emit", "clif"], 0, &["function", "block0"]);
    check(&["build", PROXY, "--emit", "asm"], 0, &["parse_request.client", "bytes)"]);
    let scratch = Scratch::new("graph");
    let directory = scratch.path().to_str().expect("the path is UTF-8");
    check(
        &["build", PROXY, "--emit", "graph", "-o", directory],
        0,
        &["memcached_proxy.svg", "memcached_proxy.dot"],
    );
    let read = |name: &str| std::fs::read_to_string(scratch.path().join(name)).expect("the file was written");
    assert!(
        read("memcached_proxy.svg").starts_with("<svg") && read("memcached_proxy.dot").starts_with("digraph")
    );
}

#[test]
fn file_with_the_name_of_a_library_is_rejected() {
    let scratch = Scratch::new("hides");
    let program = scratch.write("main.flick", "use memcached_binary\n");
    scratch.write("memcached_binary.flick", "# mine\n");
    check(&["check", program.to_str().expect("the path is UTF-8")], 1, &["same name", "rename it"]);
}

#[test]
fn use_finds_a_file_beside_the_program() {
    let scratch = Scratch::new("beside");
    let listing = std::fs::read_to_string(common::root().join(PROXY)).expect("the example is there");
    let grammar =
        std::fs::read_to_string(common::root().join("stdlib/memcached_binary.flick")).expect("it is there");
    let program = scratch.write("main.flick", &listing.replace("memcached_binary", "mine"));
    scratch.write("mine.flick", &grammar);
    check(&["check", program.to_str().expect("the path is UTF-8")], 0, &["ok: process `Memcached`"]);
}

#[test]
fn endless_program_is_rejected() {
    for arguments in [&["check", "/dev/zero"][..], &["run", "/dev/zero"], &["doc", "/dev/zero"]] {
        let (status, _, stderr) = run(arguments);
        assert_ne!(status, 0, "{arguments:?}");
        assert!(stderr.contains("the limit is") || stderr.contains("cannot read"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn unwritable_stdout_is_an_error() {
    for args in [
        &["check", common::PROXY][..],
        &["--help"],
        &["help", "run"],
        &["run", "--help"],
        &["--version"],
        &["store", "--", "--help"],
        &["explain", "E0102"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let output = common::flick().args(args).stdout(full).output().expect("the tool starts");
        let (status, _, stderr) = common::captured(output);
        assert_eq!(status, 1, "{args:?}: {stderr}");
        assert!(stderr.contains("cannot write to standard output"), "{args:?}: {stderr}");
    }
}

#[test]
fn tune_finds_a_cheaper_setting_within_the_sla() {
    let scratch = Scratch::new("tune");
    let plot = scratch.path().join("plot.svg");
    let plot = plot.to_str().expect("the path is UTF-8");
    let arguments = ["tune", "--model", "--load", "400k", "--sla", "p99=500us", "--json", "--plot", plot];
    let (status, stdout, stderr) = run(&arguments);
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(run(&arguments).1, stdout, "the seed is the same");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    let number =
        |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64).expect("it is a number");
    assert_eq!(report["energy"], "modelled");
    assert!(number("/best/p99_us") <= 500.0, "{stdout}");
    assert!(number("/best/watts") < 0.7 * number("/default/watts"), "{stdout}");
    let drawn = std::fs::read_to_string(plot).expect("the plot is there");
    assert!(
        drawn.matches("<circle").count() > 5 && drawn.contains(">x</text>") && drawn.contains(">+</text>"),
        "{drawn}"
    );
    check(&["tune", "--model", "--load", "5M"], 1, &["no setting that was tried keeps the SLA"]);
    check(&["tune", "--knobs", "--root", "/nonexistent"], 0, &["no cpufreq driver", "energy modelled"]);
    assert_eq!(run(&["tune", "--load", "400k"]).0, 2, "a search is on the model");
}

#[test]
fn tune_showed_a_hidden_option_in_its_usage() {
    let (status, _, stderr) = run(&["tune"]);
    assert!(status == 2 && stderr.contains("`--model [FILE]` or `--knobs`"), "{stderr}");
    assert!(!stderr.contains("watcher"), "{stderr}");
}

#[test]
fn load_did_not_say_how_an_agents_address_is_written() {
    let expected = "`7000` is not an address; write an IP address and a port: `127.0.0.1:7000`";
    check(&["load", "agent", "--listen", "7000"], 2, &[expected]);
}

#[test]
fn hints_named_options_that_are_refused() {
    let expected = "options of `flick run` go behind `--`: `flick store -- --admin ...`";
    let (status, _, stderr) = run(&["store", "--admin", "9900"]);
    assert!(status == 2 && stderr.contains(expected) && !stderr.contains("as a value"), "{stderr}");
    let listen = ["run", PROXY, "--listen", "client=127.0.0.1:0"];
    check(&listen, 2, &["give it `--connect backends=ADDRESS,ADDRESS`, in `flick.toml`"]);
    check(
        &["run", "examples/packet_edit/packet_edit.flick"],
        2,
        &["`--listen capture=ADDRESS --connect next=ADDRESS`"],
    );
}

#[test]
fn store_of_much_memory_was_refused_for_a_file_of_its_own() {
    let memory = |size: &str| run(&["store", "--memory", size, "--", "--check", "--max-memory", "1GiB"]);
    let (status, _, stderr) = memory("52GiB");
    assert!(status == 1 && stderr.contains("the dictionary `items`: lower `--memory`"), "{stderr}");
    let allowed = ["--max-memory", "60GiB", "--buffer-memory", "64MiB"];
    check(&[&["store", "--memory", "52GiB", "--", "--check"][..], &allowed].concat(), 0, &["ok: services"]);
}
