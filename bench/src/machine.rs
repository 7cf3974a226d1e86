//! The machine and the versions of the programs, for the pages of results.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// The machine.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    /// Versions of the programs that took part, by name.
    pub(crate) versions: BTreeMap<String, String>,
}

impl Machine {
    /// Describes this machine. What cannot be read is "unknown".
    pub(crate) fn describe(flick: &Path) -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let memory_kib = field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|words| words.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()));
        let versions = [
            ("memcached", version(Path::new("memcached"), "-V")),
            ("twemproxy", version(Path::new("nutcracker"), "-V")),
            ("haproxy", version(Path::new("haproxy"), "-v")),
            ("nginx", version(Path::new("nginx"), "-v")),
            ("flick", version(flick, "--version")),
        ];
        Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&cpu_info, "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: cpu_info.lines().filter(|line| line.starts_with("processor")).count(),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            versions: versions.into_iter().map(|(name, version)| (name.to_owned(), version)).collect(),
        }
    }

    /// The system and the versions of HTTP proxies, as items of a page.
    pub(crate) fn forwarders(&self) -> String {
        let system = format!("- Linux {}, {} cores\n", self.kernel, self.cores);
        let named = |name| Some(format!("- {name}: {}\n", self.versions.get(name)?));
        std::iter::once(system).chain(["flick", "haproxy", "nginx"].into_iter().filter_map(named)).collect()
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the first line a program prints about its version, wherever it prints it.
fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return "not there".to_owned() };
    let printed = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&printed).lines().next().unwrap_or("unknown").trim().to_owned()
}
