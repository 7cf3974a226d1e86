//! Checks before the start that the memory and address space suffice for everything that the services may need.
//! Promises: a service that starts never runs out of memory within its limits; the error of one that does not start
//! names the largest parts and the settings that reduce them.
//! Refuses: to guess. Nothing is checked if the machine does not report its memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flick_check::counted;
use flick_runtime::PlatformConfig;
use flick_runtime::memory::{MemoryPart, parts};
use rustix::process::{Resource, getrlimit};

use super::services::NamedService;
use super::start_failure;
use crate::commands::check::size_text;
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;

/// Number of parts that the error lists.
const LISTED_MAX: usize = 4;

/// Address space of a thread beside the tables of its services: its stack and its share of an arena. Rounded up.
const THREAD_ADDRESSES: u64 = 32 << 20;
/// Address space of the process for the compiler, the admin endpoint and the logs. Rounded up.
const PROCESS_ADDRESSES: u64 = 192 << 20;

/// Part of the available memory that the default `buffer_memory` leaves to the code, the compiler and the kernel's
/// sockets: one in this many.
const SPARE_SHARE: u64 = 8;
/// Least buffer memory that a service gets by default, however little is available.
const FITTED_MIN: u64 = 16 << 20;

/// Halvings of the default limits on connections, until the other parts fit beside the least buffers.
const HALVINGS_MAX: u32 = 4;

/// Reduces default limits of services to the available memory, so that a service with default settings starts, and
/// survives, in a small container: first those on connections, as long as the least buffers do not fit beside what the
/// connections may need, then `buffer_memory` to what the other parts leave, but not below [`FITTED_MIN`]. The files
/// that describe the memory are read below `root`.
pub fn fit_limits(
    root: &Path,
    named: &[NamedService<'_>],
    configs: &mut [PlatformConfig],
    settings: &Settings,
) -> Outcome {
    let Some((available, _)) = available_memory(root, settings) else { return Ok(()) };
    let most = available - available / SPARE_SHARE;
    for _ in 0..HALVINGS_MAX {
        if needed_at_least(named, configs, settings)? <= most {
            break;
        }
        for (service, config) in named.iter().zip(&mut *configs) {
            let (own, limits) = (&settings.programs[service.entry], &mut config.limits);
            if !own.sets_max_connections {
                limits.max_connections = limits.max_connections.div_ceil(2);
            }
            if !own.sets_max_connections_per_backend {
                limits.max_connections_per_backend = limits.max_connections_per_backend.div_ceil(2);
            }
        }
    }
    let is_default = |service: &NamedService<'_>| !settings.programs[service.entry].sets_buffer_memory;
    let count = named.iter().filter(|service| is_default(service)).count() as u64;
    let mut rest = most;
    for (service, config) in named.iter().zip(&*configs) {
        let buffers = if is_default(service) { config.limits.buffer_memory } else { 0 };
        rest = rest.saturating_sub(needed(service, config, settings)?.saturating_sub(buffers));
    }
    for (service, config) in named.iter().zip(configs) {
        if is_default(service) {
            let most = (rest / count).max(FITTED_MIN);
            config.limits.buffer_memory = config.limits.buffer_memory.min(most);
        }
    }
    Ok(())
}

/// Memory that services may need with the least buffers that they get by default.
fn needed_at_least(
    named: &[NamedService<'_>],
    configs: &[PlatformConfig],
    settings: &Settings,
) -> Result<u64, Failure> {
    let mut total = 0u64;
    for (service, config) in named.iter().zip(configs) {
        let mut config = config.clone();
        if !settings.programs[service.entry].sets_buffer_memory {
            config.limits.buffer_memory = config.limits.buffer_memory.min(FITTED_MIN);
        }
        total = total.saturating_add(needed(service, &config, settings)?);
    }
    Ok(total)
}

/// Memory that a service may need.
fn needed(service: &NamedService<'_>, config: &PlatformConfig, settings: &Settings) -> Result<u64, Failure> {
    let own = parts(service.program, config).map_err(start_failure);
    let own = own.map_err(|failure| settings.at_program(service.entry, failure))?;
    Ok(own.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes)))
}

/// Memory that all services together may need, and who says so.
fn available_memory(root: &Path, settings: &Settings) -> Option<(u64, &'static str)> {
    match settings.max_memory {
        Some(bytes) => Some((bytes, "`--max-memory` allows")),
        None => machine_memory(root).map(|bytes| (bytes, "this machine, or the cgroup of this process, has")),
    }
}

/// Compares the memory that the services may need with the `max_memory` of each program and of all together, or with
/// the memory of the machine; and their address space with what the process may still map. Dictionaries in `existing`
/// are mapped already. Returns the dictionaries of these services.
pub fn check(
    root: &Path,
    services: &[(&NamedService<'_>, &PlatformConfig)],
    settings: &Settings,
    existing: &[MemoryPart],
) -> Result<Vec<MemoryPart>, Failure> {
    let mut all = Vec::new();
    let mut entries: BTreeMap<usize, Vec<MemoryPart>> = BTreeMap::new();
    for (index, (service, config)) in services.iter().enumerate() {
        let own = parts(service.program, config).map_err(start_failure);
        let mut own = own.map_err(|failure| settings.at_program(service.entry, failure))?;
        let shares = services[..index].iter().any(|(other, _)| other.entry == service.entry);
        if shares {
            // All processes of a program share its dictionaries.
            own.retain(|part| !part.of_program);
        }
        if let Some(remedy) = settings.dictionary_remedy {
            let dicts = own.iter_mut().filter(|part| part.of_program);
            dicts.for_each(|part| remedy.clone_into(&mut part.remedy));
        }
        if services.len() > 1 {
            own.iter_mut().for_each(|part| part.what = format!("`{}`: {}", service.name, part.what));
        }
        entries.entry(service.entry).or_default().extend(own.iter().cloned());
        all.extend(own);
    }
    all.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let who = match services {
        [(only, _)] => format!("process `{}`", only.program.name),
        _ => format!("the {} services together", services.len()),
    };
    for (entry, mut own) in entries {
        let Some(allowed) = settings.programs[entry].max_memory else { continue };
        own.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        let who = format!("the program {}", settings.programs[entry].program.display());
        check_sum(&who, &own, allowed, "its `max_memory` allows")?;
    }
    if let Some((available, whose)) = available_memory(root, settings) {
        check_sum(&who, &all, available, whose)?;
    }
    if let Some(left) = address_space_left() {
        let whose =
            "the address space limit of this process (`ulimit -v`, `LimitAS=` of a systemd unit) leaves";
        check_sum(&who, &by_address_space(&all, existing, settings.workers as u64), left, whose)?;
    }
    all.retain(|part| part.of_program);
    Ok(all)
}

/// The parts by address space, with a part for the threads and the process.
fn by_address_space(parts: &[MemoryPart], existing: &[MemoryPart], threads: u64) -> Vec<MemoryPart> {
    let bytes = threads * THREAD_ADDRESSES + PROCESS_ADDRESSES;
    let process = MemoryPart {
        what: format!("{} and the process", counted(threads, "thread")),
        bytes,
        addresses: bytes,
        remedy: "lower `--workers`".to_owned(),
        of_program: false,
    };
    let new = parts.iter().filter(|part| !part.of_program || !existing.contains(part)).cloned();
    let mut all: Vec<MemoryPart> = new.chain([process]).collect();
    all.iter_mut().for_each(|part| part.bytes = part.addresses);
    all.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    all
}

/// Address space that this process may still map, if it is limited.
fn address_space_left() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(limit.saturating_sub(kilobytes(&status, "VmSize:")?))
}

fn check_sum(who: &str, parts: &[MemoryPart], available: u64, whose: &str) -> Outcome {
    excess(who, parts, available, whose).map_or(Ok(()), |text| Err(Failure::failed(text)))
}

/// The error if the parts do not fit.
fn excess(who: &str, parts: &[MemoryPart], available: u64, whose: &str) -> Option<String> {
    let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
    if total <= available {
        return None;
    }
    let mut text = format!(
        "{who} may need {} of memory, but {whose} {}, so flick does not start",
        size_text(total),
        size_text(available)
    );
    for part in parts.iter().take(LISTED_MAX) {
        text.push_str(&format!("\n  {:>10}  {}: {}", size_text(part.bytes), part.what, part.remedy));
    }
    if parts.len() > LISTED_MAX {
        let rest = parts[LISTED_MAX..].iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        text.push_str(&format!("\n  {:>10}  everything else", size_text(rest)));
    }
    Some(text)
}

/// Memory of the machine or of the process's cgroup, in bytes, as the files below `root` say.
fn machine_memory(root: &Path) -> Option<u64> {
    let total = kilobytes(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemTotal:")?;
    Some(cgroup_limit(root).map_or(total, |limit| limit.min(total)))
}

/// Parses a line of `/proc/meminfo` or `/proc/self/status`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Mount point of the cgroups, below the root.
const CGROUPS: &str = "sys/fs/cgroup";

/// The smallest limit of the cgroups around this process, of version 2 or 1, in bytes.
/// Source: the kernel's documents cgroup-v2 and cgroup-v1/memory.
fn cgroup_limit(root: &Path) -> Option<u64> {
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    limit_files(&root.join(CGROUPS), &groups)
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .min()
}

/// The files with limits of the cgroups that `/proc/self/cgroup` lists, and of those around them. In a container the
/// listed path is the host's, and the root of the mount has the container's own limit.
fn limit_files(mount: &Path, groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(own)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => (mount.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (mount.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let path = root.join(own.trim_start_matches('/'));
        let paths = path.ancestors().take_while(|path| path.starts_with(&root));
        files.extend(paths.map(|path| path.join(name)));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::super::{prepare, services};
    use super::{by_address_space, check, excess, fit_limits, kilobytes, limit_files, machine_memory};
    use crate::settings::{RunFlags, Settings};
    use clap::{Args, FromArgMatches};
    use flick_compiler::{EngineKind, Input, compile};
    use flick_runtime::Limits;
    use flick_runtime::memory::MemoryPart;
    use std::path::{Path, PathBuf};

    fn part(what: &str, bytes: u64) -> MemoryPart {
        let remedy = format!("less of {what}");
        MemoryPart { what: what.to_owned(), bytes, addresses: bytes, remedy, of_program: false }
    }

    #[test]
    fn existing_dictionary_needs_no_more_address_space() {
        let dict = MemoryPart { of_program: true, ..part("the dictionary `hits`", 3 << 30) };
        let tables = MemoryPart { addresses: 4 << 30, ..part("tables", 1 << 30) };
        let total = |existing: &[MemoryPart]| -> u64 {
            let all = by_address_space(&[dict.clone(), tables.clone()], existing, 2);
            all.iter().map(|part| part.bytes).sum()
        };
        let process = 2 * super::THREAD_ADDRESSES + super::PROCESS_ADDRESSES;
        assert_eq!(total(&[]), (7 << 30) + process);
        assert_eq!(total(std::slice::from_ref(&dict)), (4 << 30) + process);
        assert_eq!(total(&[MemoryPart { bytes: 1, ..dict.clone() }]), (7 << 30) + process);
    }

    #[test]
    fn excess_names_the_largest_parts() {
        let parts = [part("the dictionary `hits`", 3 << 30), part("network buffers", 1 << 30)];
        assert_eq!(excess("process `P`", &parts, 4 << 30, "there are"), None);
        let text = excess("process `P`", &parts, (4 << 30) - 1, "there are").expect("one byte is missing");
        for expected in
            ["may need 4 GiB", "3 GiB  the dictionary `hits`: less of the dictionary", "network buffers"]
        {
            assert!(text.contains(expected), "`{expected}` is not in\n{text}");
        }
    }

    #[test]
    fn excess_sums_up_the_smallest_parts() {
        let parts: Vec<MemoryPart> =
            (0..6).map(|index| part(&format!("part {index}"), 600 - 100 * index)).collect();
        let text = excess("process `P`", &parts, 0, "there are").expect("nothing fits into nothing");
        assert!(text.contains("part 3") && !text.contains("part 4"), "{text}");
        assert!(text.contains("300 B  everything else"), "{text}");
    }

    #[test]
    fn kilobytes_of_meminfo() {
        let text = "MemTotal:       24601234 kB\nMemFree:        1 kB\n";
        assert_eq!(kilobytes(text, "MemTotal:"), Some(24_601_234 * 1024));
        assert_eq!(kilobytes("MemFree: 1 kB\n", "MemTotal:"), None);
    }

    #[test]
    fn limits_of_both_versions_of_cgroups_are_read() {
        let groups = "4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/\n0::/d\n";
        let files = limit_files(Path::new("/sys/fs/cgroup"), groups);
        let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        let expected = [
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/d/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files, expected);
    }

    /// A machine of 8 GiB as its files describe it, removed when dropped.
    struct Machine(PathBuf);

    impl Machine {
        /// `groups`: what the process reads of its cgroups; `limits`: files below their mount point.
        fn new(name: &str, groups: &str, limits: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("flick-{name}-{}", std::process::id()));
            let files = [("proc/meminfo", "MemTotal:       8388608 kB\n"), ("proc/self/cgroup", groups)];
            let limits = limits.iter().map(|(path, text)| (format!("sys/fs/cgroup/{path}"), *text));
            for (path, text) in files.map(|(path, text)| (path.to_owned(), text)).into_iter().chain(limits) {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().expect("it is below the root")).expect("a directory");
                std::fs::write(path, text).expect("a file");
            }
            Self(root)
        }

        /// Limits of a balancer with default settings and that many workers, which fits into the memory.
        fn limits(&self, workers: &str) -> Limits {
            let path =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/http_balancer/round_robin.flick");
            let program = path.to_str().expect("the path is UTF-8");
            let command = RunFlags::augment_args(clap::Command::new("run")).no_binary_name(true);
            let args = [program, "--listen", "client=127.0.0.1:0", "--connect", "backends=127.0.0.1:1"];
            let matches = command.get_matches_from([&args[..], &["--workers", workers]].concat());
            let flags = RunFlags::from_arg_matches(&matches).expect("the flags are right");
            let Ok(settings) = Settings::resolve(flags) else { panic!("the settings are right") };
            let compiled = Input::file(&path).and_then(|input| compile(&input, EngineKind::Interpreter));
            let compiled = compiled.unwrap_or_else(|failure| panic!("{failure}"));
            let programs = [(0, &compiled.executables[0].module.program)];
            let Ok(named) = services::named(&settings, &programs) else { panic!("it has a name") };
            let made = prepare::configs(&settings, &named, &Default::default(), &Default::default());
            let Ok((mut configs, _)) = made else { panic!("the bindings are right") };
            assert!(fit_limits(&self.0, &named, &mut configs, &settings).is_ok());
            let configured = [(&named[0], &configs[0])];
            assert!(check(&self.0, &configured, &settings, &[]).is_ok(), "{workers} workers do not fit");
            configs.remove(0).limits
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn memory_limit_of_a_container_was_ignored_with_cgroup_v1() {
        const GIB: u64 = 1 << 30;
        let unlimited = "9223372036854771712";
        let (v1, v2) = ("4:memory:/docker/1\n3:cpu,cpuacct:/docker/1\n", "0::/docker/1\n");
        let (v1_file, v2_file) = ("memory/memory.limit_in_bytes", "memory.max");
        for (name, groups, limits, memory) in [
            ("no-cgroup", "", &[][..], 8 * GIB),
            ("v1-unlimited", v1, &[(v1_file, unlimited)], 8 * GIB),
            ("v2-unlimited", v2, &[(v2_file, "max\n")], 8 * GIB),
            // In a container the path is the host's, and the root of the mount has the limit.
            ("v1", v1, &[(v1_file, "536870912\n")], GIB / 2),
            ("v2", v2, &[(v2_file, "536870912\n")], GIB / 2),
            // On the host the own directory has it, and those around it may have less.
            (
                "v1-around",
                v1,
                &[("memory/docker/1/memory.limit_in_bytes", "1073741824"), (v1_file, "536870912")],
                GIB / 2,
            ),
            ("v2-around", v2, &[("docker/1/memory.max", "536870912"), ("docker/memory.max", "max")], GIB / 2),
            ("v2-small", v2, &[("docker/1/memory.max", "134217728")], GIB / 8),
        ] {
            let machine = Machine::new(name, groups, limits);
            assert_eq!(machine_memory(&machine.0), Some(memory), "{name}");
            let buffers = machine.limits("1").buffer_memory;
            println!("{name}: {memory} bytes of memory, {buffers} of buffers");
            match memory {
                _ if memory == 8 * GIB => assert_eq!(buffers, GIB, "{name}: the default"),
                _ => assert!((super::FITTED_MIN..memory).contains(&buffers), "{name}: {buffers}"),
            }
        }
    }

    #[test]
    fn service_with_default_settings_and_several_workers_did_not_start_in_a_small_container() {
        let machine = |mib: u64| {
            let limit = (mib << 20).to_string();
            Machine::new(&format!("{mib}-mib"), "0::/\n", &[("memory.max", limit.as_str())])
        };
        let (small, large) = (machine(128), machine(8192));
        for workers in ["1", "2", "8"] {
            let (fitted, default) = (small.limits(workers), large.limits(workers));
            let of = |limits: &Limits| (limits.max_connections, limits.max_connections_per_backend);
            println!("{workers} workers: {:?}", of(&fitted));
            assert_eq!(of(&default), (20_000, 1024), "{workers} workers");
            assert!((1..=4).any(|halvings| of(&fitted) == (20_000 >> halvings, 1024 >> halvings)));
        }
    }
}
