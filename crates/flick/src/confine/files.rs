//! The files a service may touch, held by Landlock.
//! Promises: what is not named is neither read nor written nor started, by any thread that this one starts afterwards;
//! a kernel without Landlock changes nothing and is told. Files that are open stay open.
//! Source: landlock(7), the kernel's `Documentation/userspace-api/landlock.rst`.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, path_beneath_rules,
};

use super::{Held, Paths};

/// What every service reads: itself and its machine, how names are resolved, the time zone, the libraries of the system.
const ALWAYS_READ: &[&str] = &[
    "/proc",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
    "/etc/resolv.conf",
    "/etc/hosts",
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

/// What starts a program that is linked with libraries.
const LOADERS: &[&str] = &["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// What every service reads.
pub fn always_read() -> Vec<PathBuf> {
    ALWAYS_READ.iter().map(PathBuf::from).collect()
}

/// Restricts this thread and those it will start; what does not exist is not allowed.
pub fn restrict(paths: &Paths) -> Held {
    match enforce(paths) {
        Ok(RulesetStatus::FullyEnforced) => Held::Wholly,
        Ok(RulesetStatus::PartiallyEnforced) => Held::Partly,
        Ok(RulesetStatus::NotEnforced) => Held::No,
        Err(error) => {
            tracing::debug!(%error, "files are not confined");
            Held::No
        }
    }
}

fn enforce(paths: &Paths) -> Result<RulesetStatus, RulesetError> {
    // Files only, up to this version: a newer kernel does not restrict more than was tested.
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
        .add_rules(path_beneath_rules(&paths.write, write))?
        .add_rules(path_beneath_rules(&paths.start, read | AccessFs::Execute))?;
    let ruleset = match paths.start.is_empty() {
        true => ruleset,
        false => ruleset.add_rules(path_beneath_rules(LOADERS, read | AccessFs::Execute))?,
    };
    Ok(ruleset.restrict_self()?.ruleset)
}
