//! `flick tune --knobs`: the knobs and energy meters of this machine, with values and ranges, or the reason why one is
//! missing.
//! Promises: files are only read; a missing or unreadable file is a reason and not an error; at most `ENTRIES_MAX`
//! entries of a directory are read. Not here: a change of a knob.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::failure::Outcome;

/// Entries of a directory that are read: interfaces, idle states, energy zones.
const ENTRIES_MAX: usize = 256;

/// The directory of energy zones.
pub(super) const POWERCAP: &str = "sys/class/powercap";

/// Reason of a machine without energy meters.
pub(super) const NO_RAPL: &str = "the kernel has no powercap zone of RAPL, as in most virtual machines";

/// First kernel with `irq-suspend-timeout`.
const IRQ_SUSPEND_KERNEL: (u32, u32) = (6, 13);

/// First kernel with the `EPIOCSPARAMS` request of epoll.
const EPOLL_PARAMS_KERNEL: (u32, u32) = (6, 9);

/// A knob.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Knob {
    name: String,
    /// Value now.
    value: Option<String>,
    range: Option<String>,
    /// The tool or file that changes it.
    change: String,
    /// The reason, if it does not exist here or this user cannot change it.
    missing: Option<String>,
}

/// All knobs and meters.
#[derive(Debug, Serialize)]
struct Inventory {
    knobs: Vec<Knob>,
    meters: Vec<Meter>,
}

/// A way to learn energy.
#[derive(Debug, PartialEq, Serialize)]
struct Meter {
    name: String,
    /// `measured` or `modelled`.
    energy: &'static str,
    missing: Option<String>,
}

/// Prints the inventory.
pub(super) fn run(root: &Path, is_json: bool) -> Outcome {
    let inventory = Inventory::read(root);
    let text = if is_json { super::json(&inventory)? } else { inventory.text() };
    crate::console::sayln!("{}", text.trim_end());
    Ok(())
}

impl Inventory {
    fn read(root: &Path) -> Self {
        let tree = Tree(root);
        let mut knobs = own();
        knobs.push(clock(&tree));
        knobs.push(idle_states(&tree));
        knobs.extend(interfaces(&tree));
        knobs.push(tree.file("net.core.busy_poll".to_owned(), "proc/sys/net/core/busy_poll"));
        knobs.push(by_kernel(
            &tree,
            "epoll busy poll",
            EPOLL_PARAMS_KERNEL,
            "the `EPIOCSPARAMS` request of epoll",
        ));
        knobs.push(by_kernel(
            &tree,
            "irq-suspend-timeout",
            IRQ_SUSPEND_KERNEL,
            "netdev netlink, for each NAPI",
        ));
        Self { knobs, meters: meters(&tree) }
    }

    fn text(&self) -> String {
        let mut out = String::from("knobs\n");
        for Knob { name, value, range, change, missing } in &self.knobs {
            out.push_str(&format!("  {name:34} {}", value.as_deref().unwrap_or("-")));
            if let Some(range) = range {
                out.push_str(&format!("   of {range}"));
            }
            match missing {
                Some(reason) => out.push_str(&format!("   not here: {reason}\n")),
                None => out.push_str(&format!("   by {change}\n")),
            }
        }
        out.push_str("meters\n");
        for Meter { name, energy, missing } in &self.meters {
            let state =
                missing.as_ref().map_or(format!("energy {energy}"), |reason| format!("not here: {reason}"));
            out.push_str(&format!("  {name:34} {state}\n"));
        }
        out
    }
}

/// Knobs of flick itself, which every machine has.
fn own() -> Vec<Knob> {
    let knob = |name: &str, range: &str, change: &str| Knob {
        name: name.to_owned(),
        value: None,
        range: Some(range.to_owned()),
        change: change.to_owned(),
        ..Knob::default()
    };
    let running = "the admin endpoint's `tunables`, while the service runs";
    vec![
        knob("flick busy-poll", "0 to 1ms", running),
        knob("flick batch-delay-max", "0 to 10ms", running),
        knob("flick time-slice", "1us to 100ms", running),
        knob("flick workers", "1 to the number of CPUs", "`--workers`, at start"),
    ]
}

fn clock(tree: &Tree<'_>) -> Knob {
    let folder = "sys/devices/system/cpu/cpu0/cpufreq";
    let read = |file: &str| tree.text(&format!("{folder}/{file}"));
    let ghz = |file: &str| Some(format!("{:.2}GHz", read(file).ok()?.parse::<f64>().ok()? / 1e6));
    let no_driver = "the kernel has no cpufreq driver for this processor, as in most virtual machines";
    let missing = match read("scaling_driver") {
        Ok(_) => tree.not_writable(&format!("{folder}/scaling_max_freq")),
        Err(_) => Some(no_driver.to_owned()),
    };
    Knob {
        name: "CPU clock".to_owned(),
        value: ghz("scaling_max_freq"),
        range: ghz("cpuinfo_min_freq")
            .zip(ghz("cpuinfo_max_freq"))
            .map(|(low, high)| format!("{low} to {high}")),
        change: format!("/{folder}/scaling_max_freq, of each CPU"),
        missing,
    }
}

fn idle_states(tree: &Tree<'_>) -> Knob {
    let folder = "sys/devices/system/cpu/cpu0/cpuidle";
    let states: Vec<(String, bool)> = tree
        .entries(folder)
        .into_iter()
        .filter(|entry| entry.starts_with("state"))
        .filter_map(|entry| {
            let name = tree.text(&format!("{folder}/{entry}/name")).ok()?;
            let is_enabled = tree.text(&format!("{folder}/{entry}/disable")).is_ok_and(|value| value == "0");
            Some((name, is_enabled))
        })
        .collect();
    let names = |states: &mut dyn Iterator<Item = &(String, bool)>| -> String {
        states.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let no_states =
        "the kernel has no cpuidle states for this processor; a hypervisor decides when it sleeps";
    let missing = match states.is_empty() {
        true => Some(no_states.to_owned()),
        false => tree.not_writable(&format!("{folder}/state0/disable")),
    };
    Knob {
        name: "idle states".to_owned(),
        value: (!states.is_empty()).then(|| names(&mut states.iter().filter(|(_, is_enabled)| *is_enabled))),
        range: (!states.is_empty()).then(|| names(&mut states.iter())),
        change: format!("/{folder}/state*/disable, of each CPU"),
        missing,
    }
}

/// Interrupt delay, GRO flush timeout and deferred interrupts of each network card.
fn interfaces(tree: &Tree<'_>) -> Vec<Knob> {
    let folder = "sys/class/net";
    let mut knobs = Vec::new();
    for interface in tree.entries(folder).into_iter().filter(|name| name != "lo") {
        let is_card = tree.exists(&format!("{folder}/{interface}/device"));
        let virtual_reason =
            || (!is_card).then(|| "a virtual interface has no interrupts of its own".to_owned());
        knobs.push(Knob {
            name: format!("{interface} rx-usecs"),
            change: format!("`ethtool -C {interface} rx-usecs N`, if its driver can"),
            missing: virtual_reason(),
            ..Knob::default()
        });
        for file in ["gro_flush_timeout", "napi_defer_hard_irqs"] {
            let mut knob = tree.file(format!("{interface} {file}"), &format!("{folder}/{interface}/{file}"));
            knob.missing = virtual_reason().or(knob.missing);
            knobs.push(knob);
        }
    }
    if knobs.is_empty() {
        knobs.push(Knob {
            name: "rx-usecs".to_owned(),
            change: "`ethtool -C`".to_owned(),
            missing: Some("there is no network interface beside lo".to_owned()),
            ..Knob::default()
        });
    }
    knobs
}

/// A knob that a kernel has from some version on.
fn by_kernel(tree: &Tree<'_>, name: &str, since: (u32, u32), change: &str) -> Knob {
    let release = tree.text("proc/sys/kernel/osrelease");
    let version = release.as_deref().ok().and_then(kernel_version);
    let missing = match version {
        Some(version) if version >= since => None,
        Some((major, minor)) => {
            Some(format!("Linux {}.{} has it, this is {major}.{minor}", since.0, since.1))
        }
        None => Some("the kernel's version is unknown".to_owned()),
    };
    Knob { name: name.to_owned(), change: change.to_owned(), missing, ..Knob::default() }
}

/// Major and minor number of a release such as `6.8.0-45-generic`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-', '+']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

/// RAPL zones, and the fallback that every machine has.
fn meters(tree: &Tree<'_>) -> Vec<Meter> {
    let zone = |entry: String| {
        let name = tree.text(&format!("{POWERCAP}/{entry}/name")).unwrap_or_else(|_| entry.clone());
        let missing = tree.text(&format!("{POWERCAP}/{entry}/energy_uj")).err();
        Meter { name: format!("RAPL {name}"), energy: "measured", missing }
    };
    let mut meters: Vec<Meter> = packages(tree).into_iter().map(zone).collect();
    if meters.is_empty() {
        let missing = Some(NO_RAPL.to_owned());
        meters.push(Meter { name: "RAPL".to_owned(), energy: "measured", missing });
    }
    meters.push(Meter { name: "CPU seconds and the model".to_owned(), energy: "modelled", missing: None });
    meters
}

/// The powercap zones that are a whole package: `intel-rapl:0`, not `intel-rapl:0:1`, nor `psys`, which holds them.
pub(super) fn packages(tree: &Tree<'_>) -> Vec<String> {
    let is_package = |entry: &String| {
        let number = entry.strip_prefix("intel-rapl:").and_then(|number| number.parse::<u32>().ok());
        number.is_some() && tree.text(&format!("{POWERCAP}/{entry}/name")).as_deref() != Ok("psys")
    };
    tree.entries(POWERCAP).into_iter().filter(is_package).collect()
}

/// The directory with `sys` and `proc`.
#[derive(Debug)]
pub(super) struct Tree<'a>(pub(super) &'a Path);

impl Tree<'_> {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// The text of a file, or why there is none.
    pub(super) fn text(&self, path: &str) -> Result<String, String> {
        match fs::read_to_string(self.at(path)) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(format!("cannot read /{path}: {error}")),
        }
    }

    /// The reason why this user cannot write a file, if so.
    fn not_writable(&self, path: &str) -> Option<String> {
        let result = rustix::fs::access(self.at(path), rustix::fs::Access::WRITE_OK);
        result.err().map(|error| format!("cannot write /{path}: {}", std::io::Error::from(error)))
    }

    /// A knob that is one file.
    fn file(&self, name: String, path: &str) -> Knob {
        let value = self.text(path);
        let missing = value.as_ref().err().cloned().or_else(|| self.not_writable(path));
        Knob { name, value: value.ok(), change: format!("/{path}"), missing, ..Knob::default() }
    }

    /// Names in a directory, in order.
    fn entries(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.at(path)) else { return Vec::new() };
        let names = entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use super::Inventory;

    /// A machine as its files describe it, removed when dropped.
    pub(in crate::commands::tune) struct FakeTree(pub(in crate::commands::tune) PathBuf);

    impl FakeTree {
        pub(in crate::commands::tune) fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("flick-knobs-{name}-{}", std::process::id()));
            let tree = Self(root);
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        pub(in crate::commands::tune) fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("it is below the root")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }

        /// The line of a knob or meter.
        fn line(&self, name: &str) -> String {
            let text = Inventory::read(&self.0).text();
            let mut lines = text.lines().map(str::trim);
            let line = lines.find(|line| line.starts_with(name));
            line.unwrap_or_else(|| panic!("`{name}` is not in\n{text}")).to_owned()
        }
    }

    impl Drop for FakeTree {
        fn drop(&mut self) {
            // A machine without files has no directory.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_server_has_all_knobs_with_values_and_ranges() {
        let cpu = |file: &str| format!("sys/devices/system/cpu/cpu0/{file}");
        let files = [
            (cpu("cpufreq/scaling_driver"), "intel_pstate\n"),
            (cpu("cpufreq/scaling_max_freq"), "2900000\n"),
            (cpu("cpufreq/cpuinfo_min_freq"), "1200000\n"),
            (cpu("cpufreq/cpuinfo_max_freq"), "3800000\n"),
            (cpu("cpuidle/state0/name"), "POLL\n"),
            (cpu("cpuidle/state0/disable"), "0\n"),
            (cpu("cpuidle/state1/name"), "C6\n"),
            (cpu("cpuidle/state1/disable"), "1\n"),
            ("sys/class/net/eth0/device/vendor".to_owned(), "0x8086\n"),
            ("sys/class/net/eth0/gro_flush_timeout".to_owned(), "20000\n"),
            ("sys/class/net/eth0/napi_defer_hard_irqs".to_owned(), "2\n"),
            ("proc/sys/net/core/busy_poll".to_owned(), "50\n"),
            ("proc/sys/kernel/osrelease".to_owned(), "6.13.0-rc1\n"),
            ("sys/class/powercap/intel-rapl:0/name".to_owned(), "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/energy_uj".to_owned(), "1\n"),
            ("sys/class/powercap/intel-rapl:0:0/name".to_owned(), "core\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = FakeTree::new("server", &files);
        for (name, rest) in [
            (
                "CPU clock",
                "2.90GHz   of 1.20GHz to 3.80GHz   by /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq",
            ),
            ("idle states", "POLL   of POLL C6   by "),
            ("eth0 rx-usecs", "-   by `ethtool -C eth0 rx-usecs N`"),
            ("eth0 gro_flush_timeout", "20000   by /sys/class/net/eth0/gro_flush_timeout"),
            ("net.core.busy_poll", "50   by /proc/sys/net/core/busy_poll"),
            ("irq-suspend-timeout", "-   by "),
            ("RAPL package-0", "energy measured"),
            ("CPU seconds and the model", "energy modelled"),
        ] {
            let line = tree.line(name);
            assert!(line.contains(rest) && !line.contains("not here"), "{line}");
        }
        let text = Inventory::read(&tree.0).text();
        assert!(!text.contains("RAPL core") && !text.contains("not here"), "{text}");
    }

    #[test]
    fn a_virtual_machine_says_why_its_knobs_are_missing() {
        let files =
            [("sys/class/net/dummy0/gro_flush_timeout", "0\n"), ("proc/sys/kernel/osrelease", "6.8.0-45\n")];
        let tree = FakeTree::new("virtual", &files);
        for (name, reason) in [
            ("CPU clock", "no cpufreq driver"),
            ("idle states", "no cpuidle states"),
            ("dummy0 gro_flush_timeout", "a virtual interface has no interrupts"),
            ("net.core.busy_poll", "cannot read /proc/sys/net/core/busy_poll: No such file"),
            ("irq-suspend-timeout", "Linux 6.13 has it, this is 6.8"),
            ("RAPL", "no powercap zone"),
        ] {
            let line = tree.line(name);
            assert!(line.contains("not here: ") && line.contains(reason), "{line}");
        }
        assert!(tree.line("flick busy-poll").contains("tunables"), "flick has its own everywhere");
        assert!(tree.line("CPU seconds").contains("energy modelled"));
    }

    #[test]
    fn a_machine_without_files_is_no_error() {
        let tree = FakeTree::new("empty", &[]);
        assert!(tree.line("rx-usecs").contains("there is no network interface"));
        assert!(tree.line("epoll busy poll").contains("the kernel's version is unknown"));
    }
}
