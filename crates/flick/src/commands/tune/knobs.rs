//! `flick tune --knobs`: the knobs and energy meters of this machine, with values, ranges and costs, or the reason why
//! one is missing.
//! Promises: files and sockets of the kernel are only read. Not here: a change of a knob (`kernel.rs`).

use std::path::Path;

use serde::Serialize;

use super::kernel::{KernelKnob, KernelKnobName, NETWORK};
use super::tree::{Tree, not_writable};
use crate::failure::Outcome;

/// The directory of energy zones.
pub(super) const POWERCAP: &str = "sys/class/powercap";

/// Reason of a machine without energy meters.
pub(super) const NO_RAPL: &str = "the kernel has no powercap zone of RAPL, as in most virtual machines";

/// First kernel with the `EPIOCSPARAMS` request of epoll.
const EPOLL_PARAMS_KERNEL: (u32, u32) = (6, 9);

/// A knob.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Knob {
    name: String,
    /// Value now.
    value: Option<String>,
    range: Option<String>,
    /// The option, tool or file that changes it.
    change: String,
    /// Cost of a change: the time until it has its effect.
    settle_ms: Option<u128>,
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
        knobs.extend(KernelKnobName::OF_MACHINE.map(|name| of_kernel(&tree, name, None)));
        let mut interfaces: Vec<Option<String>> = tree.entries(NETWORK).into_iter().map(Some).collect();
        interfaces.retain(|name| name.as_deref() != Some("lo"));
        if interfaces.is_empty() {
            interfaces.push(None);
        }
        for interface in &interfaces {
            let knob = |name| of_kernel(&tree, name, interface.as_deref());
            knobs.extend(KernelKnobName::OF_INTERFACE.map(knob));
        }
        knobs.push(busy_poll(&tree));
        knobs.push(epoll_busy_poll(&tree));
        Self { knobs, meters: meters(&tree) }
    }

    fn text(&self) -> String {
        let mut out = String::from("knobs\n");
        for Knob { name, value, range, change, settle_ms, missing } in &self.knobs {
            out.push_str(&format!("  {name:34} {}", value.as_deref().unwrap_or("-")));
            if let Some(range) = range {
                out.push_str(&format!("   of {range}"));
            }
            match missing {
                Some(reason) => out.push_str(&format!("   not here: {reason}\n")),
                None => out.push_str(&format!(
                    "   by {change}{}\n",
                    settle_ms.map_or(String::new(), |time| format!(", in {time}ms"))
                )),
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

/// A knob that a search turns.
fn of_kernel(tree: &Tree<'_>, name: KernelKnobName, interface: Option<&str>) -> Knob {
    let shown = interface.map_or(name.text().to_owned(), |interface| format!("{interface} {}", name.text()));
    let of_interface = interface.map_or(String::new(), |interface| format!(" --interface {interface}"));
    let change = format!("`--kernel {}{of_interface}`", name.text());
    match KernelKnob::open(tree, name, interface) {
        Err(missing) => Knob { name: shown, change, missing: Some(missing), ..Knob::default() },
        Ok(knob) => Knob {
            name: shown,
            value: Some(format!("{}{}", knob.before(), name.unit())),
            range: Some(format!("{} to {}{}", knob.range().start(), knob.range().end(), name.unit())),
            change,
            settle_ms: Some(knob.settle().as_millis()),
            missing: knob.refusal(),
        },
    }
}

/// Busy polls of all sockets, which only the administrator sets.
fn busy_poll(tree: &Tree<'_>) -> Knob {
    let path = "proc/sys/net/core/busy_poll";
    let value = tree.text(path);
    let missing = value.as_ref().err().cloned().or_else(|| not_writable(&tree.at(path)));
    let (name, change) = ("net.core.busy_poll".to_owned(), format!("/{path}"));
    Knob { name, value: value.ok(), change, missing, ..Knob::default() }
}

/// Busy polls of one epoll instance, which only its own program sets.
fn epoll_busy_poll(tree: &Tree<'_>) -> Knob {
    let missing = tree.older_than(EPOLL_PARAMS_KERNEL);
    let change = "the `EPIOCSPARAMS` request of epoll".to_owned();
    Knob { name: "epoll busy poll".to_owned(), change, missing, ..Knob::default() }
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

#[cfg(test)]
mod tests {
    use super::Inventory;
    use crate::commands::tune::tree::tests::FakeTree;

    /// The line of a knob or meter.
    fn line(tree: &FakeTree, name: &str) -> String {
        let text = Inventory::read(&tree.0).text();
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("`{name}` is not in\n{text}")).to_owned()
    }

    #[test]
    fn a_server_has_all_knobs_with_values_and_ranges() {
        let cpu = |file: &str| format!("sys/devices/system/cpu/cpu0/{file}");
        let files = [
            (cpu("cpufreq/scaling_driver"), "intel_pstate\n"),
            (cpu("cpufreq/scaling_max_freq"), "2900000\n"),
            (cpu("cpufreq/cpuinfo_min_freq"), "1200000\n"),
            (cpu("cpufreq/cpuinfo_max_freq"), "3800000\n"),
            (cpu("cpuidle/state0/disable"), "0\n"),
            (cpu("cpuidle/state1/disable"), "1\n"),
            ("sys/class/net/fakecard0/device/vendor".to_owned(), "0x8086\n"),
            ("sys/class/net/fakecard0/gro_flush_timeout".to_owned(), "20000\n"),
            ("sys/class/net/fakecard0/napi_defer_hard_irqs".to_owned(), "2\n"),
            ("proc/sys/net/core/busy_poll".to_owned(), "50\n"),
            ("proc/sys/kernel/osrelease".to_owned(), "6.13.0-rc1\n"),
            ("sys/class/powercap/intel-rapl:0/name".to_owned(), "package-0\n"),
            ("sys/class/powercap/intel-rapl:0/energy_uj".to_owned(), "1\n"),
            ("sys/class/powercap/intel-rapl:0:0/name".to_owned(), "core\n"),
        ];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let tree = FakeTree::new("server", &files);
        for (name, rest) in [
            ("clock", "2900000kHz   of 1200000 to 3800000kHz   by `--kernel clock`, in 10ms"),
            ("idle-states", "0   of 0 to 1   by `--kernel idle-states`, in 10ms"),
            (
                "fakecard0 gro-flush-timeout",
                "20000ns   of 0 to 200000ns   by `--kernel gro-flush-timeout --interface fakecard0`",
            ),
            (
                "fakecard0 defer-hard-irqs",
                "2   of 0 to 100   by `--kernel defer-hard-irqs --interface fakecard0`",
            ),
            ("net.core.busy_poll", "50   by /proc/sys/net/core/busy_poll"),
            ("epoll busy poll", "-   by "),
            ("RAPL package-0", "energy measured"),
            ("CPU seconds and the model", "energy modelled"),
        ] {
            let line = line(&tree, name);
            assert!(line.contains(rest) && !line.contains("not here"), "{line}");
        }
        let text = Inventory::read(&tree.0).text();
        assert!(!text.contains("RAPL core"), "{text}");
        // The kernel that runs this test has no such card.
        assert!(
            line(&tree, "fakecard0 rx-usecs")
                .contains("not here: cannot read the interrupt delay of fakecard0"),
            "{text}"
        );
    }

    #[test]
    fn a_virtual_machine_says_why_its_knobs_are_missing() {
        let files = [
            ("sys/class/net/dummy0/gro_flush_timeout", "0\n"),
            ("sys/class/net/card0/device/vendor", "0x8086\n"),
            ("proc/sys/kernel/osrelease", "6.8.0-45\n"),
        ];
        let tree = FakeTree::new("virtual", &files);
        for (name, reason) in [
            ("clock", "no cpufreq driver"),
            ("idle-states", "no cpuidle states"),
            ("dummy0 gro-flush-timeout", "a virtual interface without NAPIs has no interrupts"),
            ("net.core.busy_poll", "cannot read /proc/sys/net/core/busy_poll: No such file"),
            ("epoll busy poll", "Linux 6.9 has it, this is 6.8"),
            ("card0 irq-suspend-timeout", "Linux 6.13 has it, this is 6.8"),
            ("RAPL", "no powercap zone"),
        ] {
            let line = line(&tree, name);
            assert!(line.contains("not here: ") && line.contains(reason), "{line}");
        }
        assert!(line(&tree, "flick busy-poll").contains("tunables"), "flick has its own everywhere");
        assert!(line(&tree, "CPU seconds").contains("energy modelled"));
    }

    #[test]
    fn a_machine_without_files_is_no_error() {
        let tree = FakeTree::new("empty", &[]);
        assert!(line(&tree, "clock").contains("no cpufreq driver"));
        assert!(line(&tree, "epoll busy poll").contains("the kernel's version is unknown"));
    }
}
