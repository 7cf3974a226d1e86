//! `flick tune ADDRESS`: searches on a service under load, and the knobs that must be as before, however it ends.

mod common;
#[path = "tuning/kernel_knobs.rs"]
mod kernel_knobs;

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};

use common::peers::{Memcached, Server, signal};
use common::process::OwnedChild;
use common::service::{Service, seen};
use common::{Scratch, flick, wait};

/// Keys of the load, which are written before it begins.
const KEYS: u64 = 100;

/// The knobs of the service before a search.
const BEFORE: [u64; 3] = [70_000, 0, 30_000];

/// The time in which knobs must be as before when the search was killed.
const RESTORE_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// A proxy under load.
struct Loaded {
    _load: OwnedChild,
    service: Service,
    _backend: Server,
}

impl Loaded {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(extra: &[&str]) -> Self {
        let backend = Memcached::start();
        let knobs = ["--workers", "1", "--busy-poll", "70us", "--time-slice", "30us", "--admin", "0"];
        let service = Service::proxy(&[backend.address], &[&knobs, extra].concat());
        let url = format!("memcached://{}", service.address);
        let mut load = flick();
        load.args(["load", &url, "--protocol", "binary", "--connections", "4", "--rate", "2k"]);
        load.args(["--keys", &KEYS.to_string(), "--duration", "60s"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let load = OwnedChild(load.spawn().expect("the tool starts"));
        let loaded = Self { _load: load, service, _backend: backend };
        wait::until("the load", || {
            let state: serde_json::Value =
                serde_json::from_str(&seen(loaded.admin(), "/api/state").1).ok()?;
            let buckets = state.pointer("/services/0/times/buckets")?.as_array()?;
            let requests: u64 = buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum();
            // There is a pause behind the requests that write the keys.
            (requests > KEYS + 100).then_some(())
        });
        loaded
    }

    fn admin(&self) -> SocketAddr {
        self.service.admin_address()
    }

    fn knobs(&self) -> [u64; 3] {
        let text = seen(self.admin(), "/api/tunables").1;
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let value = |name: &str| read["Memcached"][name].as_u64().expect("a number");
        ["busy_poll_ns", "batch_delay_max_ns", "time_slice_ns"].map(value)
    }

    fn set(&self, values: &str) {
        let admin = flick_admin::Address::Tcp(self.admin());
        let reply = flick_admin::client::post(&admin, &format!("/api/tunables?{values}"), None);
        assert_eq!(reply.expect("the endpoint answers").status, 200);
    }

    /// A search, of which the first line of a trial was read.
    fn search(&self, extra: &[&str]) -> Search {
        let mut command = flick();
        command.args(["tune", &self.admin().to_string(), "--dwell", "150ms"]).args(extra);
        if !extra.contains(&"--sla") {
            command.args(["--sla", "p50:1s"]);
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Search { child, lines }
    }
}

/// A search in a process of its own.
struct Search {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Search {
    /// Waits for a line.
    fn until(&mut self, part: &str) {
        let mut text = String::new();
        while !text.lines().last().is_some_and(|line| line.contains(part)) {
            let length = self.lines.read_line(&mut text).expect("it writes text");
            assert!(length > 0, "`{part}` is in no line of\n{text}");
        }
    }

    /// Its status, and what it and its watcher have written since.
    fn ended(mut self) -> (std::process::ExitStatus, String, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.lines.read_to_string(&mut stdout).expect("it writes text");
        let errors = self.child.stderr.as_mut().expect("it is piped");
        errors.read_to_string(&mut stderr).expect("it writes text");
        (self.child.wait().expect("our own child"), stdout, stderr)
    }
}

#[test]
fn killed_search_leaves_the_knobs_as_before() {
    let loaded = Loaded::start();
    for name in ["KILL", "INT"] {
        let search = loaded.search(&[]);
        wait::until("a knob to be turned", || (loaded.knobs() != BEFORE).then_some(()));
        signal(search.child.id(), name);
        let killed = std::time::Instant::now();
        wait::within(RESTORE_TIME_MAX, || (loaded.knobs() == BEFORE).then_some(()))
            .unwrap_or_else(|| panic!("{name}: {:?} after {:?}", loaded.knobs(), killed.elapsed()));
        let (status, _, stderr) = search.ended();
        assert!(!status.success(), "{name}: {status}");
        assert!(stderr.contains("the knobs of Memcached are as before"), "{name}: {stderr}");
        assert_eq!(loaded.knobs(), BEFORE, "{name}: the watcher has ended");
    }
    loaded.set("busy_poll=70us");
}

#[test]
fn search_reports_trials_and_changes_nothing() {
    let loaded = Loaded::start();
    // RAPL of this process's own tree: the counter stands still but for its energy since the search began.
    let scratch = Scratch::new("tuning-rapl");
    let zone = scratch.path().join("sys/class/powercap/intel-rapl:0");
    std::fs::create_dir_all(&zone).expect("the directory can be written");
    for (file, text) in [("name", "package-0"), ("energy_uj", "5"), ("max_energy_range_uj", "1000")] {
        std::fs::write(zone.join(file), text).expect("the directory can be written");
    }
    let root = scratch.path().to_str().expect("the path is UTF-8");
    let (status, stdout, stderr) = loaded.search(&["--budget", "3", "--root", root, "--json"]).ended();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!((&report["energy"], &report["is_applied"]), (&"measured".into(), &false.into()), "{stdout}");
    let trials = report["trials"].as_array().expect("trials");
    assert_eq!(trials.len(), 3, "{stdout}");
    assert_eq!(trials[0]["knobs"]["busy_poll_us"], 70, "the first trial is of the present setting");
    for trial in trials {
        let number = |name: &str| trial["result"][name].as_f64().expect("a number");
        assert!(number("requests_per_s") > 100.0 && number("cpu_us_per_request") > 0.0, "{stdout}");
        assert!(number("p50_us") > 0.0 && trial["keeps_sla"] == true, "{stdout}");
    }
    assert_eq!(loaded.knobs(), BEFORE);
    // Without the counter, energy is modelled, and the reason is said.
    std::fs::remove_file(zone.join("energy_uj")).expect("it is there");
    let (status, stdout, stderr) = loaded.search(&["--budget", "1", "--root", root]).ended();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    for piece in
        ["energy is modelled: cannot read /sys/class/powercap/intel-rapl:0/energy_uj: ", "(modelled)"]
    {
        assert!(stdout.contains(piece), "{piece}: {stdout}");
    }
    assert!(stdout.contains("the knobs of Memcached are as before: busy_poll 70us"), "{stdout}");
}

#[test]
fn values_of_an_operator_are_not_overwritten() {
    let loaded = Loaded::start();
    let mut search = loaded.search(&[]);
    search.until("70us ");
    wait::until("a knob to be turned", || (loaded.knobs() != BEFORE).then_some(()));
    loaded.set("busy_poll=77us");
    let (status, _, stderr) = search.ended();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("something else has set the knobs of Memcached to busy_poll 77us"), "{stderr}");
    assert_eq!(loaded.knobs()[0], 77_000);
    // A reload sets the values of the settings.
    let search = loaded.search(&[]);
    wait::until("a knob to be turned", || (loaded.knobs()[0] != 77_000).then_some(()));
    let admin = flick_admin::Address::Tcp(loaded.admin());
    let reply = flick_admin::client::post(&admin, "/api/reload", None).expect("the endpoint answers");
    assert_eq!(reply.status, 200, "{}", reply.body);
    let (status, _, stderr) = search.ended();
    assert_eq!(status.code(), Some(1), "{stderr}");
    for part in ["was restarted, upgraded or reloaded", "has set the knobs of Memcached to busy_poll 70us"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert_eq!(loaded.knobs(), BEFORE);
}

#[test]
fn search_ends_with_its_service() {
    let loaded = Loaded::start();
    let search = loaded.search(&[]);
    wait::until("a knob to be turned", || (loaded.knobs() != BEFORE).then_some(()));
    loaded.service.signal("KILL");
    let (status, _, stderr) = search.ended();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no process has its admin endpoint there"), "{stderr}");
    assert!(stderr.contains("Memcached has ended: its next start has the knobs of its settings"), "{stderr}");
}

#[test]
fn best_setting_is_applied_where_it_is_asked_for() {
    let loaded = Loaded::start();
    // A batch delay above the bound never keeps it, so another setting is better at any cost.
    loaded.set("batch_delay_max=10ms");
    let scratch = Scratch::new("tuning-apply");
    let file = scratch.path().join("flick.toml");
    std::fs::write(&file, "[limits] # of all\nbusy_poll = \"70us\"\n").expect("it can be written");
    let path = file.to_str().expect("the path is UTF-8");
    let args = ["--sla", "p50:9ms", "--budget", "6", "--apply", "--settings", path, "--json"];
    let (status, stdout, stderr) = loaded.search(&args).ended();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!((&report["is_applied"], &report["present"]["keeps_sla"]), (&true.into(), &false.into()));
    let chosen = &report["best"]["knobs"];
    let value = |name: &str| 1000 * chosen[name].as_u64().expect("a number");
    let expected = ["busy_poll_us", "batch_delay_max_us", "time_slice_us"].map(value);
    assert_eq!(loaded.knobs(), expected, "{stdout}");
    assert!(expected[1] <= 1_000_000, "{stdout}");
    let [poll, delay, slice] = expected.map(|ns| ns / 1000);
    let written = format!(
        "[limits] # of all\nbatch_delay_max = \"{delay}us\"\ntime_slice = \"{slice}us\"\nbusy_poll = \"{poll}us\"\n"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), written);
}

#[test]
fn tunables_follow_the_load_until_something_else_sets_them() {
    let loaded = Loaded::start_with(&["--tune-sla", "p50:1s", "--tune-interval", "1s"]);
    // The bound is kept with a margin, so that the busy poll becomes shorter, one step at a time.
    let values = wait::until("a step", || Some(loaded.knobs()).filter(|knobs| *knobs != BEFORE));
    assert_eq!(values, [20_000, 0, 30_000], "from 70 us, or 50 us of the ladder");
    loaded.set("busy_poll=70us");
    let log = || loaded.service.log();
    wait::until("the follower to stop", || log().contains("something else has set tunables").then_some(()));
    assert!(log().contains("tunables change: the SLA is kept with a margin (p50 "), "{}", log());
    assert_eq!(loaded.knobs(), BEFORE);
}

#[test]
fn dry_run_changes_no_tunable() {
    let mode = ["--tune-mode", "dry-run"];
    let loaded =
        Loaded::start_with(&[&["--tune-sla", "p50:1us", "--tune-interval", "1s"], &mode[..]].concat());
    wait::until("a decision", || {
        let log = loaded.service.log();
        log.contains("tunables would change: the SLA is exceeded (p50 ").then_some(())
    });
    assert_eq!(loaded.knobs(), BEFORE);
}

#[test]
fn model_of_a_search_chooses_later_without_trials() {
    let loaded = Loaded::start();
    let scratch = Scratch::new("tuning-model");
    let file = scratch.path().join("proxy.json");
    let path = file.to_str().expect("the path is UTF-8");
    let missing = common::run(&["tune", "--model", path, "--sla", "p50:1s"]);
    assert_eq!(missing.0, 1, "{missing:?}");
    assert!(missing.2.contains("a search writes it, `flick tune ADDRESS --model "), "{}", missing.2);
    let (status, _, stderr) = loaded.search(&["--budget", "6", "--model", path]).ended();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    let written = std::fs::read_to_string(&file).expect("the search has written it");

    // Without the service, and for another bound.
    let (status, stdout, stderr) = common::run(&["tune", "--model", path, "--sla", "p50:100ms", "--json"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    let choice: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    assert_eq!(
        (&choice["trials"], &choice["sla_us"], &choice["is_applied"]),
        (&6.into(), &100_000.into(), &false.into())
    );
    let number =
        |path: &str| choice.pointer(path).and_then(serde_json::Value::as_f64).expect("it is a number");
    assert!(
        number("/best/keeps_sla_probability") >= 0.7 && number("/best/bounded_us") <= 100_000.0,
        "{stdout}"
    );
    assert!(number("/best/cost") <= number("/best/present_cost") * 1.05, "{stdout}");

    // With the service: applied without a trial.
    let (status, stdout, stderr) = loaded.search(&["--model", path, "--apply", "--json"]).ended();
    assert!(status.success() && stderr.is_empty(), "{stderr}");
    let choice: serde_json::Value = serde_json::from_str(&stdout).expect("it is JSON");
    let best = &choice["best"]["knobs"];
    let chosen = ["busy_poll_us", "batch_delay_max_us", "time_slice_us"]
        .map(|name| 1000 * best[name].as_u64().expect("a number"));
    assert_eq!(loaded.knobs(), chosen, "{stdout}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), written, "a model is never overwritten");

    let other = scratch.write("other.json", &written.replace("\"Memcached\"", "\"Other\""));
    let other = other.to_str().expect("the path is UTF-8");
    for (args, error) in [
        (vec!["--sla", "p99:1s", "--model", path], "the model knows p50 and not p99"),
        (vec!["--model", other], "the model is of Other, and not of Memcached"),
        (vec!["--model"], "the model of a service is in a file: --model FILE"),
        (vec!["--model", path, "--kernel", "idle-states"], "cannot turn idle-states: "),
        (vec!["--model", "/nonexistent/model.json"], "cannot write the model /nonexistent/model.json: "),
    ] {
        let args = [&args[..], &["--root", "/nonexistent"]].concat();
        let (status, _, stderr) = loaded.search(&args).ended();
        assert!(!status.success() && stderr.contains(error), "{args:?}: {stderr}");
    }
    let (status, _, stderr) = common::run(&["tune", "--model", path, "--load", "400k"]);
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("--load is for the model of a server"), "{stderr}");
    assert_eq!(loaded.knobs(), chosen);
}
