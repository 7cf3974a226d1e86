//! Knobs of the kernel: what each one is, its range, the cost of a change, and how it is read, turned and restored.
//! Promises: a knob that does not exist here says why; each location of a knob, such as a file of each CPU, is restored
//! to its own value.
//! Not here: when a knob is turned (`live.rs`), the process that restores it (`restore.rs`).
//! Source: the kernel's documentation: admin-guide/pm/cpufreq.rst and cpuidle.rst, networking/napi.rst.

use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::netlink::{Attributes, Family};
use super::target::KernelSetting;
use super::tree::{Tree, not_writable};

/// Knobs of the kernel that a search turns: each one is a dimension of the search, whose cost grows with a power.
pub(super) const TURNED_MAX: usize = 3;

/// Clocks that are tried.
const CLOCKS: u64 = 5;

/// Values that are tried, within the range of a knob.
const RX_DELAYS_US: [u64; 6] = [0, 10, 25, 50, 100, 200];
const FLUSH_TIMEOUTS_NS: [u64; 5] = [0, 20_000, 50_000, 100_000, 200_000];
const DEFERRED_IRQS: [u64; 4] = [0, 2, 10, 100];
const SUSPEND_TIMEOUTS_NS: [u64; 4] = [0, 1_000_000, 10_000_000, 20_000_000];

/// Time after which a change has its effect. Drivers may reset the queues of a card when its delay changes.
const SETTLE: Duration = Duration::from_millis(10);
const SETTLE_CARD: Duration = Duration::from_secs(1);

/// First kernel with settings of each NAPI, among them `irq-suspend-timeout`.
const NAPI_KERNEL: (u32, u32) = (6, 13);

/// Commands and attributes of the family `ethtool`.
const COALESCE_GET: u8 = 19;
const COALESCE_SET: u8 = 20;
const COALESCE_HEADER: u16 = 1;
const COALESCE_RX_USECS: u16 = 2;
const COALESCE_ADAPTIVE_RX: u16 = 11;
const HEADER_DEVICE_NAME: u16 = 2;

/// Commands and attributes of the family `netdev`.
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const NAPI_INTERFACE: u16 = 1;
const NAPI_ID: u16 = 2;

/// A knob of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
pub(super) enum KernelKnobName {
    /// Highest clock of all CPUs (cpufreq)
    Clock,
    /// Deepest idle state of all CPUs (cpuidle)
    IdleStates,
    /// Delay of interrupts of a network card (ethtool's coalescing)
    RxUsecs,
    /// Time after which a poll ends the merging of packets (NAPI)
    GroFlushTimeout,
    /// Empty polls before interrupts are enabled again (NAPI)
    DeferHardIrqs,
    /// Time for which interrupts are suspended while a program polls (NAPI)
    IrqSuspendTimeout,
}

impl KernelKnobName {
    /// Knobs of the machine, and of each network interface.
    pub(super) const OF_MACHINE: [Self; 2] = [Self::Clock, Self::IdleStates];
    pub(super) const OF_INTERFACE: [Self; 4] =
        [Self::RxUsecs, Self::GroFlushTimeout, Self::DeferHardIrqs, Self::IrqSuspendTimeout];

    /// The name that `--kernel` has for it.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::IdleStates => "idle-states",
            Self::RxUsecs => "rx-usecs",
            Self::GroFlushTimeout => "gro-flush-timeout",
            Self::DeferHardIrqs => "defer-hard-irqs",
            Self::IrqSuspendTimeout => "irq-suspend-timeout",
        }
    }

    /// The unit behind a value.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Clock => "kHz",
            Self::RxUsecs => "us",
            Self::GroFlushTimeout | Self::IrqSuspendTimeout => "ns",
            Self::IdleStates | Self::DeferHardIrqs => "",
        }
    }

    /// Longest time, in microseconds, for which a packet waits at a value.
    pub(super) fn delay_us(self, value: u64) -> u64 {
        match self {
            Self::RxUsecs => value,
            Self::GroFlushTimeout => value / 1000,
            _ => 0,
        }
    }

    /// Attribute of a NAPI.
    fn napi_attribute(self) -> Option<u16> {
        match self {
            Self::DeferHardIrqs => Some(5),
            Self::GroFlushTimeout => Some(6),
            Self::IrqSuspendTimeout => Some(7),
            _ => None,
        }
    }
}

/// A location of a value in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Location {
    /// A file with a number.
    File(PathBuf),
    /// The file `disable` of an idle state with this number.
    IdleState(PathBuf, u64),
    /// The interrupt delay of an interface.
    RxUsecs(String),
    /// Whether the driver chooses the delay itself, which any value of the knob ends.
    AdaptiveRx(String),
    /// An attribute of a NAPI.
    Napi(u32, u16),
}

impl Location {
    fn get(&self) -> Result<u64, String> {
        match self {
            Self::File(path) | Self::IdleState(path, _) => {
                let text = fs::read_to_string(path).map_err(|error| failed("read", path, &error))?;
                text.trim().parse().map_err(|_| format!("{} is not a number: {text}", path.display()))
            }
            Self::RxUsecs(interface) => coalescing(interface, COALESCE_RX_USECS),
            Self::AdaptiveRx(interface) => coalescing(interface, COALESCE_ADAPTIVE_RX),
            Self::Napi(id, attribute) => {
                let request = Attributes::default().with(NAPI_ID, &id.to_ne_bytes());
                let answer = netdev().and_then(|family| family.request(NAPI_GET, &request));
                let answer = answer.map_err(|error| format!("cannot read NAPI {id}: {error}"))?;
                let value = answer.first().and_then(|answer| answer.number(*attribute));
                value.ok_or_else(|| format!("NAPI {id} has no such setting"))
            }
        }
    }

    /// Sets the value that belongs to a value of the knob.
    fn apply(&self, value: u64) -> Result<(), String> {
        match self {
            Self::IdleState(_, state) => self.set(u64::from(*state > value)),
            Self::AdaptiveRx(_) => self.set(0),
            _ => self.set(value),
        }
    }

    fn set(&self, value: u64) -> Result<(), String> {
        match self {
            Self::File(path) | Self::IdleState(path, _) => {
                // A file that is missing, as that of a CPU taken offline, is not made.
                let file = fs::OpenOptions::new().write(true).truncate(true).open(path);
                file.and_then(|mut file| file.write_all(value.to_string().as_bytes()))
                    .map_err(|error| failed("write", path, &error))
            }
            Self::RxUsecs(interface) => {
                set_coalescing(interface, COALESCE_RX_USECS, &(value as u32).to_ne_bytes())
            }
            Self::AdaptiveRx(interface) => {
                set_coalescing(interface, COALESCE_ADAPTIVE_RX, &[u8::from(value != 0)])
            }
            Self::Napi(id, attribute) => {
                let request = Attributes::default().with(NAPI_ID, &id.to_ne_bytes());
                let request = match Some(*attribute) == KernelKnobName::DeferHardIrqs.napi_attribute() {
                    true => request.with(*attribute, &(value as u32).to_ne_bytes()),
                    false => request.with(*attribute, &value.to_ne_bytes()),
                };
                let done = netdev().and_then(|family| family.request(NAPI_SET, &request));
                done.map(drop).map_err(|error| format!("cannot set NAPI {id}: {error}"))
            }
        }
    }
}

fn failed(what: &str, path: &std::path::Path, error: &io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

fn netdev() -> io::Result<Family> {
    Family::open("netdev", 1)
}

fn device(interface: &str) -> Attributes {
    let name = Attributes::default().with(HEADER_DEVICE_NAME, &[interface.as_bytes(), &[0]].concat());
    Attributes::default().with_nested(COALESCE_HEADER, &name)
}

fn coalescing(interface: &str, attribute: u16) -> Result<u64, String> {
    let answer =
        Family::open("ethtool", 1).and_then(|family| family.request(COALESCE_GET, &device(interface)));
    let answer = answer.map_err(|error| no_coalescing(interface, &error))?;
    let value = answer.first().and_then(|answer| answer.number(attribute));
    value.ok_or_else(|| format!("the driver of {interface} has no such delay of interrupts"))
}

fn no_coalescing(interface: &str, error: &io::Error) -> String {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::OPNOTSUPP) => {
            format!("the driver of {interface} does not delay interrupts, as those of virtual interfaces")
        }
        _ => format!("cannot read the interrupt delay of {interface}: {error}"),
    }
}

fn set_coalescing(interface: &str, attribute: u16, value: &[u8]) -> Result<(), String> {
    let request = device(interface).with(attribute, value);
    let done = Family::open("ethtool", 1).and_then(|family| family.request(COALESCE_SET, &request));
    done.map(drop).map_err(|error| format!("cannot set the interrupt delay of {interface}: {error}"))
}

/// A knob that exists here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KernelKnob {
    pub(super) name: KernelKnobName,
    /// Its interface, if it belongs to one.
    pub(super) interface: Option<String>,
    /// Its locations, each with the value that it had.
    locations: Vec<(Location, u64)>,
    range: [u64; 2],
}

impl KernelKnob {
    /// Reads a knob. Errors: why it does not exist here.
    pub(super) fn open(
        tree: &Tree<'_>,
        name: KernelKnobName,
        interface: Option<&str>,
    ) -> Result<Self, String> {
        let of_interface = || {
            let known = tree.entries(NETWORK);
            let interface = interface.ok_or("it belongs to a network interface: --interface NAME")?;
            match known.iter().any(|one| one == interface) {
                true => Ok(interface),
                false => Err(format!("there is no interface {interface}; there are {}", known.join(", "))),
            }
        };
        let (locations, range) = match name {
            KernelKnobName::Clock => clocks(tree)?,
            KernelKnobName::IdleStates => idle_states(tree)?,
            KernelKnobName::RxUsecs => rx_usecs(of_interface()?),
            _ => napis(tree, name, of_interface()?)?,
        };
        let read = |location: Location| location.get().map(|value| (location, value));
        let locations: Vec<(Location, u64)> =
            locations.into_iter().map(read).collect::<Result<_, String>>()?;
        let interface = KernelKnobName::OF_INTERFACE.contains(&name).then_some(interface).flatten();
        Ok(Self {
            name,
            interface: interface.map(str::to_owned),
            locations,
            range: [*range.start(), *range.end()],
        })
    }

    /// The value that it had when it was opened.
    pub(super) fn before(&self) -> u64 {
        let value = |(location, value): &(Location, u64)| match location {
            Location::IdleState(_, state) => (*value == 0).then_some(*state),
            Location::AdaptiveRx(_) => None,
            _ => Some(*value),
        };
        self.locations.iter().filter_map(value).max().unwrap_or(self.range[0])
    }

    /// The smallest and the largest value.
    pub(super) fn range(&self) -> RangeInclusive<u64> {
        self.range[0]..=self.range[1]
    }

    /// The values that a search tries, with the present one.
    pub(super) fn values(&self) -> Vec<u64> {
        let [low, high] = self.range;
        let mut values: Vec<u64> = match self.name {
            KernelKnobName::Clock => {
                (0..CLOCKS).map(|step| low + (high - low) * step / (CLOCKS - 1)).collect()
            }
            KernelKnobName::IdleStates => self.range().collect(),
            KernelKnobName::RxUsecs => RX_DELAYS_US.to_vec(),
            KernelKnobName::GroFlushTimeout => FLUSH_TIMEOUTS_NS.to_vec(),
            KernelKnobName::DeferHardIrqs => DEFERRED_IRQS.to_vec(),
            KernelKnobName::IrqSuspendTimeout => SUSPEND_TIMEOUTS_NS.to_vec(),
        };
        values.push(self.before());
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Cost of a change: the time after which it has its effect.
    pub(super) fn settle(&self) -> Duration {
        if self.name == KernelKnobName::RxUsecs { SETTLE_CARD } else { SETTLE }
    }

    /// Turns it. Errors: why some locations may have their former value.
    pub(super) fn set(&self, value: u64) -> Result<(), String> {
        if value == self.before() {
            return self.restore();
        }
        self.locations.iter().try_for_each(|(location, _)| location.apply(value))
    }

    /// Restores all locations, in reverse order. Errors: why some are not restored.
    pub(super) fn restore(&self) -> Result<(), String> {
        let results = self.locations.iter().rev().map(|(location, value)| location.set(*value));
        let errors: Vec<String> = results.filter_map(Result::err).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    /// The reason why this user cannot turn it, if so.
    pub(super) fn refusal(&self) -> Option<String> {
        let refusal = |(location, _): &(Location, u64)| match location {
            Location::File(path) | Location::IdleState(path, _) => not_writable(path),
            _ if rustix::process::geteuid().is_root() => None,
            _ => Some("only the administrator can turn it".to_owned()),
        };
        self.locations.iter().find_map(refusal)
    }
}

/// The values that knobs had when they were opened.
pub(super) fn before(knobs: &[KernelKnob]) -> KernelSetting {
    knobs.iter().fold(KernelSetting::EMPTY, |setting, knob| setting.with(knob.name, knob.before()))
}

/// Gives each knob its value in a setting; the former value where it has none. Errors: why some have another one.
pub(super) fn set_all(knobs: &[KernelKnob], setting: KernelSetting) -> Result<(), String> {
    let set = |knob: &KernelKnob| match setting.value(knob.name) {
        Some(value) => knob.set(value).err(),
        None => knob.restore().err(),
    };
    let errors: Vec<String> = knobs.iter().filter_map(set).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

/// The directories of CPUs and of network interfaces.
const CPUS: &str = "sys/devices/system/cpu";
pub(super) const NETWORK: &str = "sys/class/net";

type Found = (Vec<Location>, RangeInclusive<u64>);

/// The directories of CPUs: `cpu0`, not `cpufreq`.
fn cpus(tree: &Tree<'_>) -> Vec<String> {
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
    tree.entries(CPUS).into_iter().filter(is_cpu).collect()
}

fn clocks(tree: &Tree<'_>) -> Result<Found, String> {
    let folder = |cpu: &String| format!("{CPUS}/{cpu}/cpufreq");
    let all: Vec<String> = cpus(tree).iter().map(folder).filter(|folder| tree.exists(folder)).collect();
    let Some(first) = all.first() else {
        return Err(
            "the kernel has no cpufreq driver for this processor, as in most virtual machines".to_owned()
        );
    };
    let limit = |file: &str| Location::File(tree.at(&format!("{first}/{file}"))).get();
    let range = limit("cpuinfo_min_freq")?..=limit("cpuinfo_max_freq")?;
    if range.is_empty() {
        return Err(format!("/{first} has a lowest clock above its highest"));
    }
    let file = |folder: &String| Location::File(tree.at(&format!("{folder}/scaling_max_freq")));
    Ok((all.iter().map(file).collect(), range))
}

fn idle_states(tree: &Tree<'_>) -> Result<Found, String> {
    let states = |cpu: String| {
        let folder = format!("{CPUS}/{cpu}/cpuidle");
        let location = |entry: &String| {
            let state = entry.strip_prefix("state")?.parse().ok()?;
            Some(Location::IdleState(tree.at(&format!("{folder}/{entry}/disable")), state))
        };
        tree.entries(&folder).iter().filter_map(location).collect::<Vec<_>>()
    };
    let locations: Vec<Location> = cpus(tree).into_iter().flat_map(states).collect();
    let number = |location: &Location| if let Location::IdleState(_, state) = location { *state } else { 0 };
    match locations.iter().map(number).max() {
        Some(deepest) => Ok((locations, 0..=deepest)),
        None => {
            Err("the kernel has no cpuidle states for this processor; a hypervisor decides when it sleeps"
                .to_owned())
        }
    }
}

fn rx_usecs(interface: &str) -> Found {
    let adaptive = Location::AdaptiveRx(interface.to_owned());
    let mut locations = vec![Location::RxUsecs(interface.to_owned())];
    if adaptive.get().is_ok() {
        // First: some drivers refuse a delay while they choose it themselves.
        locations.insert(0, adaptive);
    }
    (locations, 0..=RX_DELAYS_US[RX_DELAYS_US.len() - 1])
}

/// The locations of a setting of each NAPI of an interface, or of its file where the kernel has no such settings.
fn napis(tree: &Tree<'_>, name: KernelKnobName, interface: &str) -> Result<Found, String> {
    let attribute = name.napi_attribute().expect("it is a setting of NAPIs");
    let highest = match name {
        KernelKnobName::DeferHardIrqs => DEFERRED_IRQS[DEFERRED_IRQS.len() - 1],
        KernelKnobName::GroFlushTimeout => FLUSH_TIMEOUTS_NS[FLUSH_TIMEOUTS_NS.len() - 1],
        _ => SUSPEND_TIMEOUTS_NS[SUSPEND_TIMEOUTS_NS.len() - 1],
    };
    let number = |file: &str| Location::File(tree.at(&format!("{NETWORK}/{interface}/{file}"))).get();
    let index = number("ifindex").and_then(|index| u32::try_from(index).map_err(|error| error.to_string()));
    let known = index.and_then(|index| {
        let request = Attributes::default().with(NAPI_INTERFACE, &index.to_ne_bytes());
        let answers = netdev().and_then(|family| family.dump(NAPI_GET, &request));
        answers.map_err(|error| format!("cannot list the NAPIs of {interface}: {error}"))
    });
    let location = |answer: &Attributes| {
        answer.number(attribute)?;
        Some(Location::Napi(u32::try_from(answer.number(NAPI_ID)?).ok()?, attribute))
    };
    let locations: Vec<Location> = known.iter().flatten().filter_map(location).collect();
    if !locations.is_empty() {
        return Ok((locations, 0..=highest));
    }
    let is_card = tree.exists(&format!("{NETWORK}/{interface}/device"));
    let file = match name {
        _ if !is_card => {
            return Err("a virtual interface without NAPIs has no interrupts of its own".to_owned());
        }
        KernelKnobName::GroFlushTimeout => "gro_flush_timeout",
        KernelKnobName::DeferHardIrqs => "napi_defer_hard_irqs",
        _ => return Err(no_napi_settings(tree, interface)),
    };
    Ok((vec![Location::File(tree.at(&format!("{NETWORK}/{interface}/{file}")))], 0..=highest))
}

/// The reason why an interface has no settings of each NAPI.
fn no_napi_settings(tree: &Tree<'_>, interface: &str) -> String {
    let reason = tree.older_than(NAPI_KERNEL);
    reason.unwrap_or_else(|| format!("{interface} is down, or its driver has no NAPI with a number"))
}

#[cfg(test)]
mod tests {
    use super::{KernelKnob, KernelKnobName};
    use crate::commands::tune::tree::Tree;
    use crate::commands::tune::tree::tests::FakeTree;

    fn server(name: &str) -> FakeTree {
        let files = [
            ("cpu0/cpufreq/scaling_max_freq", "2900000"),
            ("cpu1/cpufreq/scaling_max_freq", "2100000"),
            ("cpu0/cpufreq/cpuinfo_min_freq", "1200000"),
            ("cpu0/cpufreq/cpuinfo_max_freq", "2900000"),
            ("cpu0/cpuidle/state0/disable", "0"),
            ("cpu0/cpuidle/state1/disable", "0"),
            ("cpu1/cpuidle/state0/disable", "0"),
            ("cpu1/cpuidle/state1/disable", "1"),
            // Neither of these is a CPU.
            ("cpufreq/policy0/scaling_max_freq", "1"),
            ("cpuidle/current_driver", "intel_idle"),
        ];
        let files = files.map(|(file, text)| (format!("{}/{file}", super::CPUS), text));
        let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (file.as_str(), *text)).collect();
        FakeTree::new(name, &files)
    }

    fn check(name: KernelKnobName, before: u64, turned: u64, files: &[(&str, &str, &str)]) {
        let tree = server(name.text());
        let knob = KernelKnob::open(&Tree(&tree.0), name, None).expect("it exists");
        assert_eq!((knob.before(), knob.refusal()), (before, None));
        let values = knob.values();
        assert!(
            values.contains(&before) && values.iter().all(|value| knob.range().contains(value)),
            "{values:?}"
        );
        let path = |file: &str| format!("{}/{file}", super::CPUS);
        knob.set(turned).expect("the files can be written");
        files.iter().for_each(|(file, _, then)| assert_eq!(tree.read(&path(file)), *then, "{file}"));
        knob.set(before).expect("the files can be written");
        files.iter().for_each(|(file, own, _)| assert_eq!(tree.read(&path(file)), *own, "{file}"));
    }

    #[test]
    fn each_cpu_is_restored_to_its_own_clock() {
        let files = [
            ("cpu0/cpufreq/scaling_max_freq", "2900000", "1625000"),
            ("cpu1/cpufreq/scaling_max_freq", "2100000", "1625000"),
        ];
        check(KernelKnobName::Clock, 2_900_000, 1_625_000, &files);
    }

    #[test]
    fn each_idle_state_of_each_cpu_is_restored() {
        let files = [
            ("cpu0/cpuidle/state0/disable", "0", "0"),
            ("cpu0/cpuidle/state1/disable", "0", "1"),
            ("cpu1/cpuidle/state0/disable", "0", "0"),
            ("cpu1/cpuidle/state1/disable", "1", "1"),
        ];
        check(KernelKnobName::IdleStates, 1, 0, &files);
    }

    #[test]
    fn malformed_files_are_reasons() {
        let tree = server("malformed");
        let open = |name| KernelKnob::open(&Tree(&tree.0), name, None).expect_err("it is malformed");
        tree.write(&format!("{}/cpu0/cpufreq/cpuinfo_min_freq", super::CPUS), "2900001");
        assert!(open(KernelKnobName::Clock).contains("a lowest clock above its highest"));
        tree.write(&format!("{}/cpu1/cpuidle/state0/disable", super::CPUS), "no");
        assert!(open(KernelKnobName::IdleStates).ends_with("disable is not a number: no"));
        assert!(
            open(KernelKnobName::RxUsecs).contains("it belongs to a network interface: --interface NAME")
        );
    }
}
