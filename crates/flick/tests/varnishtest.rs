//! The HTTP balancer between the mock clients and servers of varnishtest, a tool that we did not write and that has
//! opinions of its own on what a message is. The scripts are ours: `varnishtest/*.vtc`, a symptom each.

mod common;

use std::path::PathBuf;
use std::process::Command;

/// Fewest scripts there must be, so that a wrong path is no silent success.
const SCRIPTS_MIN: usize = 40;
/// Seconds that one may take on a busy machine.
const SECONDS_MAX: u32 = 60;
/// Number of scripts that run at one time.
const AT_ONCE: u32 = 4;

fn scripts() -> Vec<PathBuf> {
    let folder = common::root().join("crates/flick/tests/varnishtest");
    let entries = std::fs::read_dir(&folder).expect("the scripts are part of the repository");
    let mut scripts: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    scripts.sort();
    assert!(scripts.len() >= SCRIPTS_MIN, "only {} scripts", scripts.len());
    scripts
}

#[test]
fn varnishtest_scripts_pass_through_the_balancer() {
    let balancer = common::root().join("examples/http_balancer/round_robin.flick");
    let mut command = Command::new("varnishtest");
    command.arg("-k").args(["-j", &AT_ONCE.to_string(), "-t", &SECONDS_MAX.to_string()]);
    command.arg("-D").arg(format!("flick={}", env!("CARGO_BIN_EXE_flick")));
    command.arg("-D").arg(format!("balancer={}", balancer.display()));
    let output =
        command.args(scripts()).output().expect("varnishtest is one of the packages that tests need");
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = said.lines().filter(|line| line.contains(" passed ")).count();
    assert!(output.status.success() && passed == scripts().len(), "{passed} passed\n{said}");
}
