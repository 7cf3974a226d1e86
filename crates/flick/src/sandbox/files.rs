//! The files that a service may use, enforced by Landlock.
//! Promises: other files cannot be opened for reading, writing or execution, by this thread and those it starts later;
//! a kernel without Landlock is reported and restricts nothing. Open files stay open.
//! Source: landlock(7), the kernel's `Documentation/userspace-api/landlock.rst`.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};

use super::{AllowedPaths, Enforcement};

/// Paths that every service reads: procfs and sysfs, names of hosts and users, the time zone, system libraries.
const ALWAYS_READ: &[&str] = &[
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/usr/share/zoneinfo",
    "/dev/null",
    "/dev/urandom",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// Paths that every service reads.
pub fn always_read() -> Vec<PathBuf> {
    let name_servers = std::fs::canonicalize("/etc/resolv.conf").ok().and_then(|file| directory_of(&file));
    ALWAYS_READ.iter().map(PathBuf::from).chain(name_servers).collect()
}

/// The directory of what `/etc/resolv.conf` leads to, where systemd-resolved, NetworkManager or resolvconf own it:
/// they write another file and rename it, and only the directory allows both to be read.
fn directory_of(file: &Path) -> Option<PathBuf> {
    let directory = file.parent()?;
    let is_owned = directory.parent().is_some_and(|above| above.starts_with("/run"));
    is_owned.then(|| directory.to_owned())
}

/// Restricts this thread and those it starts later. A path that does not exist is not allowed.
pub fn restrict(paths: &AllowedPaths) -> Enforcement {
    match enforce(paths) {
        Ok(RulesetStatus::FullyEnforced) => Enforcement::Full,
        Ok(RulesetStatus::PartiallyEnforced) => Enforcement::Partial,
        Ok(RulesetStatus::NotEnforced) => Enforcement::Unavailable,
        Err(error) => {
            tracing::debug!(%error, "cannot restrict files");
            Enforcement::Unavailable
        }
    }
}

fn enforce(paths: &AllowedPaths) -> Result<RulesetStatus, RulesetError> {
    // A newer kernel restricts no more than what was tested with this version.
    let abi = ABI::V5;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = read
        | AccessFs::WriteFile
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSock
        | AccessFs::Truncate
        | AccessFs::Refer;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(&paths.read, read))?
        .add_rules(path_beneath_rules(["/dev/null"], read | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(&paths.write, write))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::directory_of;

    #[test]
    fn directory_is_read_only_where_it_is_for_name_servers() {
        let of = |file: &str| directory_of(Path::new(file));
        assert_eq!(of("/run/systemd/resolve/stub-resolv.conf"), Some(PathBuf::from("/run/systemd/resolve")));
        assert_eq!(of("/run/NetworkManager/resolv.conf"), Some(PathBuf::from("/run/NetworkManager")));
        for other in ["/etc/resolv.conf", "/run/resolv.conf", "/srv/resolv.conf", "/"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
