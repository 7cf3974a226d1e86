//! Memcached's own tests, from the source package of Debian, against the key-value server: the files that pass whole
//! are pinned.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::captured;
use common::peers::output;
use common::service::Service;

/// The version whose files are pinned.
const VERSION: &str = "1.6.18";
/// With what Debian signs.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Files of `t/` that run against a server started by others and pass whole. memcached 1.6.18 itself, started without
/// options, passes 29 of the 82: all of these but `evictions` (for which it needs `-m 3`), and five others. `issue_29`,
/// `issue_42` and `issue_163` look for numbers of memcached's slab classes; `stats-detail` wants counters for each
/// prefix of keys, and `watcher_connid` the command `watch`.
const PASS: &[&str] = &[
    "binary-get",
    "bogus-commands",
    "cas",
    "chunked-items",
    "evictions",
    "flags",
    "getandtouch",
    "getset",
    "incrdecr",
    "issue_104",
    "issue_108",
    "issue_14",
    "issue_152",
    "issue_192",
    "issue_3",
    "issue_41",
    "issue_68",
    "issue_70",
    "line-lengths",
    "malicious-commands",
    "multiversioning",
    "noreply",
    "quit",
    "strtol-testing",
    "touch",
];
/// Files that run at the same time: most of their time, they wait for entries to expire.
const LANES: usize = 6;

/// The line for sources from where this machine has its packages from.
fn source_line() -> String {
    let format = ["--format", "$(LABEL)|$(COMPONENT)|$(RELEASE)|$(REPO_URI)", "Created-By: Packages"];
    let (_, stdout, stderr) =
        captured(output(Command::new("apt-get").arg("indextargets").args(format), "apt"));
    let main = stdout.lines().find_map(|line| {
        let (release, uri) = line.strip_prefix("Debian|main|")?.split_once('|')?;
        (!release.contains('-')).then(|| format!("deb-src [signed-by={KEYS}] {uri} {release} main\n"))
    });
    main.unwrap_or_else(|| {
        panic!("apt knows no release of Debian; run `apt-get update`:\n{stdout}\n{stderr}")
    })
}

/// The directory of memcached's sources, fetched into the target directory once.
fn sources() -> PathBuf {
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memcached-sources");
    let unpacked = home.join(format!("memcached-{VERSION}"));
    // It is written last.
    let stub = unpacked.join("memcached-debug");
    if stub.exists() {
        return unpacked;
    }
    for part in ["lists/partial", "archives/partial"] {
        std::fs::create_dir_all(home.join(part)).expect("the target directory can be written");
    }
    std::fs::write(home.join("sources.list"), source_line()).expect("the target directory can be written");
    let at = |option: &str, name: &str| format!("{option}={}", home.join(name).display());
    let (list, lists, cache) =
        (at("Dir::Etc::sourcelist", "sources.list"), at("Dir::State::lists", "lists"), at("Dir::Cache", ""));
    let options = ["-q", "-o", &list, "-o", "Dir::Etc::sourceparts=-", "-o", &lists, "-o", &cache];
    let package = ["source", "--download-only", "memcached"];
    for rest in [["update"].as_slice(), &package] {
        succeeds(Command::new("apt-get").args(options).args(rest).current_dir(&home), "apt");
    }
    let archive = format!("memcached_{VERSION}.orig.tar.xz");
    succeeds(Command::new("tar").args(["-xf", &archive]).current_dir(&home), "xz-utils");
    // The files ask what the server was built with; the one that is installed says.
    std::fs::write(&stub, "#!/bin/sh\nexec memcached -h\n").expect("the target directory can be written");
    succeeds(Command::new("chmod").arg("+x").arg(stub), "coreutils");
    unpacked
}

fn succeeds(command: &mut Command, package: &str) {
    let (status, stdout, stderr) = captured(output(command, package));
    assert_eq!(status, 0, "{command:?}\n{stdout}\n{stderr}");
}

/// Runs one file against a server of its own. Gives what is wrong, if anything is.
fn fault_of(file: &str, sources: &Path) -> Option<String> {
    let program = "examples/key_value_server/key_value_server.flick";
    let server = Service::start(&["run", program, "--listen", "client=127.0.0.1:0", "--workers", "1"]);
    let mut perl = Command::new("timeout");
    perl.args(["60", "perl", "-It/lib", &format!("t/{file}.t")]).current_dir(sources);
    perl.env("T_MEMD_USE_DAEMON", server.address.to_string());
    let (status, stdout, stderr) = captured(output(&mut perl, "perl"));
    server.drained();
    let passed = stdout.lines().filter(|line| line.starts_with("ok ")).count();
    let failed = stdout.lines().any(|line| line.starts_with("not ok "));
    let planned = stdout.lines().find_map(|line| line.strip_prefix("1..")?.parse::<usize>().ok());
    let whole = status == 0 && !failed && passed > 0 && planned == Some(passed);
    (!whole).then(|| format!("{file}: {status}, {passed} of {planned:?}\n{stdout}\n{stderr}"))
}

#[test]
fn key_value_server_passes_the_tests_of_memcached() {
    let sources = sources();
    let faults: Vec<String> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| PASS.iter().skip(lane).step_by(LANES))
            .map(|files| {
                scope.spawn(|| files.filter_map(|file| fault_of(file, &sources)).collect::<Vec<_>>())
            })
            .collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("no assertion failed")).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
