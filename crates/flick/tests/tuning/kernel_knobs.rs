//! Knobs of the kernel that a search turns: files of a fake machine, and the NAPIs of a real veth pair in a network
//! namespace.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::common::peers::signal;
use super::common::process::OwnedChild;
use super::common::service::Service;
use super::common::{Scratch, captured, flick, wait};
use super::{BEFORE, Loaded, RESTORE_TIME_MAX};

/// Turns on GRO of an interface by `SIOCETHTOOL`, with which veth has NAPIs.
const ENABLE_GRO: &str = "\
import ctypes, fcntl, socket, struct, sys
value = ctypes.create_string_buffer(struct.pack('II', 0x2c, 1))
request = struct.pack('16sP8x', sys.argv[1].encode(), ctypes.addressof(value))
fcntl.ioctl(socket.socket(), 0x8946, request)
";

/// A network namespace with a veth pair, `v0` and `v1`, removed when dropped.
struct Namespace(String);

impl Namespace {
    fn new() -> Self {
        let namespace = Self(format!("flick-tuning-{}", std::process::id()));
        let name = namespace.0.as_str();
        ip(&["netns", "add", name]);
        ip(&["-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1"]);
        for interface in ["lo", "v0", "v1"] {
            ip(&["-n", name, "link", "set", interface, "up"]);
        }
        let mut python = namespace.command("/usr/bin/python3");
        let status = python.args(["-c", ENABLE_GRO, "v0"]).status().expect("python3 starts");
        assert!(status.success(), "veth has GRO: {status}");
        namespace
    }

    /// A command in this namespace, with its own view of `/sys/class/net`.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0, program]).current_dir(super::common::root());
        command.stdin(Stdio::null()).env_remove("FLICK_LOG").env("NO_COLOR", "1");
        command
    }

    fn flick(&self) -> Command {
        self.command(flick().get_program().to_str().expect("the path is UTF-8"))
    }

    /// Values of the knobs of `v0`, and why others are missing.
    fn knobs(&self) -> BTreeMap<String, String> {
        let (status, stdout, stderr) =
            captured(self.flick().args(["tune", "--knobs", "--json"]).output().expect("the tool starts"));
        assert_eq!(status, 0, "{stderr}");
        let read: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        let knobs = read["knobs"].as_array().expect("knobs").iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let shown = |knob: &serde_json::Value| match text(&knob["missing"]) {
            missing if missing.is_empty() => text(&knob["value"]),
            missing => missing,
        };
        let of_v0 =
            knobs.filter_map(|knob| Some((text(&knob["name"]).strip_prefix("v0 ")?.to_owned(), shown(knob))));
        of_v0.collect()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // What has failed to be made cannot be removed.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {args:?}: {status}");
}

#[test]
fn killed_search_restores_the_napis_of_a_network_interface() {
    let namespace = Namespace::new();
    let mut store = namespace.flick();
    store.args(["store", "--listen", "127.0.0.1:0", "--workers", "1", "--", "--admin", "0"]);
    let service = Service::start_as(store);
    let mut load = namespace.flick();
    load.args([
        "load",
        &format!("memcached://{}", service.address),
        "--protocol",
        "binary",
        "--connections",
        "4",
    ]);
    load.args(["--rate", "2k", "--keys", "100", "--duration", "60s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _load = OwnedChild(load.spawn().expect("the tool starts"));
    let admin = service.admin_address().to_string();
    let before = namespace.knobs();
    let missing = &before["rx-usecs"];
    assert!(missing.contains("the driver of v0 does not delay interrupts"), "{before:?}");
    let found =
        ["gro-flush-timeout", "defer-hard-irqs", "irq-suspend-timeout"].map(|name| before[name].as_str());
    assert_eq!(found, ["0ns", "0", "0ns"]);

    let command = |knobs: &str| {
        let mut command = namespace.flick();
        command.args([
            "tune",
            &admin,
            "--service",
            "Binary",
            "--sla",
            "p50:1s",
            "--dwell",
            "300ms",
            "--kernel",
            knobs,
            "--interface",
            "v0",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let all = "gro-flush-timeout,defer-hard-irqs,irq-suspend-timeout";
    // Without requests a search has nothing to measure.
    wait::until("the load", || {
        let first = command(all).args(["--budget", "1"]).output().expect("the tool starts");
        first.status.success().then_some(())
    });
    let mut search = command(all).spawn().expect("the tool starts");
    wait::until("each knob to be turned", || {
        let now = namespace.knobs();
        (now.iter().filter(|(name, value)| before[*name] != **value).count() == found.len()).then_some(())
    });
    signal(search.id(), "KILL");
    search.wait().expect("our own child");
    wait::within(RESTORE_TIME_MAX, || (namespace.knobs() == before).then_some(()))
        .unwrap_or_else(|| panic!("{:?}", namespace.knobs()));

    // The service's knobs come back a moment later, which a search that begins before takes for another's change.
    let stdout = wait::until("the knobs of the service", || {
        let output = command(all).args(["--budget", "3"]).output().expect("the tool starts");
        let (status, stdout, stderr) = captured(output);
        if stderr.contains("something else has set the knobs") {
            return None;
        }
        assert!(status == 0 && stderr.is_empty(), "{stderr}");
        Some(stdout)
    });
    assert!(stdout.contains("gro-flush-timeout 0ns, defer-hard-irqs 0, irq-suspend-timeout 0ns"), "{stdout}");
    assert_eq!(namespace.knobs(), before);
    let (status, _, stderr) = captured(command("rx-usecs").output().expect("the tool starts"));
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("cannot turn rx-usecs: the driver of v0 does not delay interrupts"), "{stderr}");
}

#[test]
fn killed_search_restores_the_clock_of_each_cpu() {
    let loaded = Loaded::start();
    let scratch = Scratch::new("tuning-cpus");
    let cpu = |file: &str| scratch.path().join("sys/devices/system/cpu").join(file);
    let files = [
        ("cpu0/cpufreq/scaling_max_freq", "2900000"),
        ("cpu1/cpufreq/scaling_max_freq", "2100000"),
        ("cpu0/cpufreq/cpuinfo_min_freq", "1200000"),
        ("cpu0/cpufreq/cpuinfo_max_freq", "2900000"),
        ("cpu0/cpuidle/state0/disable", "0"),
        ("cpu0/cpuidle/state1/disable", "0"),
        ("cpu0/cpuidle/state2/disable", "1"),
    ];
    for (file, text) in files {
        std::fs::create_dir_all(cpu(file).parent().expect("a directory")).expect("it can be made");
        std::fs::write(cpu(file), text).expect("it can be written");
    }
    let text = |file: &str| std::fs::read_to_string(cpu(file)).expect("it is there").trim().to_owned();
    let is_before = || files.iter().all(|(file, before)| text(file) == *before);
    let root = scratch.path().to_str().expect("the path is UTF-8");
    let args = ["--root", root, "--kernel", "clock,idle-states"];
    for name in ["KILL", "INT"] {
        let search = loaded.search(&args);
        wait::until("a clock to be turned", || {
            let clocks = ["cpu0", "cpu1"].map(|cpu| text(&format!("{cpu}/cpufreq/scaling_max_freq")));
            (clocks[0] == clocks[1]).then_some(())
        });
        signal(search.child.id(), name);
        wait::within(RESTORE_TIME_MAX, || (is_before() && loaded.knobs() == BEFORE).then_some(()))
            .unwrap_or_else(|| panic!("{name}: {:?}", files.map(|(file, _)| text(file))));
        let (_, _, stderr) = search.ended();
        assert!(stderr.contains("are as before: busy_poll 70us"), "{name}: {stderr}");
        assert!(stderr.contains("clock 2900000kHz, idle-states 1"), "{name}: {stderr}");
    }
    // Its normal end, and a knob that cannot be restored.
    let (status, stdout, stderr) = loaded.search(&[&args[..], &["--budget", "4"]].concat()).ended();
    assert!(status.success() && stderr.is_empty() && is_before(), "{stdout}{stderr}");
    let search = loaded.search(&args);
    wait::until("a clock to be turned", || (!is_before()).then_some(()));
    std::fs::remove_file(cpu("cpu1/cpufreq/scaling_max_freq")).expect("it is there");
    let (status, _, stderr) = search.ended();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("cannot write ") && stderr.contains("cpu1/cpufreq/scaling_max_freq"), "{stderr}");
    wait::within(Duration::from_secs(1), || (loaded.knobs() == BEFORE).then_some(()))
        .expect("flick's are restored");
    let (status, _, stderr) =
        loaded.search(&["--root", root, "--kernel", "rx-usecs", "--interface", "none"]).ended();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("there is no interface none"), "{stderr}");
}
