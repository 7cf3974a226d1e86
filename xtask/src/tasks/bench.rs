//! `cargo xtask bench`: runs every sweep of the benchmarks and the streams in shared memory for a moment, for
//! correctness only.
//! Promises: every side of every figure starts, answers and passes the load's checks; no figure is kept.
//! Not here: measuring; `bench/METHOD.md` says how.

use super::packages;
use crate::run::{self, Outcome};

/// The sweeps.
const FIGURES: &[&str] = &[
    "http-balancer",
    "http-balancer-shm",
    "static-server",
    "memcached-proxy",
    "memcached-proxy-shm",
    "key-value-server",
];
/// One connection and several, a second each.
const SHORT: &[&str] = &["--connections", "1,30", "--seconds", "1", "--warmup-seconds", "0", "--rounds", "1"];

/// Chains of one filter and of three, with records for less than a second.
const SHORT_CHAIN: &[&str] = &["--lengths", "1,3", "--records", "20000", "--rounds", "1"];

/// One filter, one client and one connection, for a second each.
const SHORT_ACCEL: &[&str] =
    &["--only", ", 1 ", "--lengths", "1", "--records", "20000", "--seconds", "1", "--rounds", "1"];

/// Runs them with the tests' builds of flick and of the benchmarks: for all targets of the workspace, cargo chooses the
/// features that it has chosen for the tests, and builds nothing twice.
pub fn run() -> Outcome {
    packages::ensure()?;
    run::run(run::cargo(&["build", "--profile", "ci", "--workspace", "--all-targets"]))?;
    let [bench, flick] = ["bench", "flick"].map(|name| run::target().join("ci").join(name));
    for figure in FIGURES {
        let mut command = run::command(&bench.to_string_lossy(), &[figure]);
        command.args(SHORT).arg("--flick").arg(&flick);
        run::run(command)?;
    }
    let mut chain = run::command(&bench.to_string_lossy(), &["chain"]);
    chain.args(SHORT_CHAIN).arg("--flick").arg(&flick);
    run::run(chain)?;
    let mut accel = run::command(&bench.to_string_lossy(), &["accel"]);
    accel.args(SHORT_ACCEL).arg("--flick").arg(&flick);
    run::run(accel)?;
    let mut idle = run::command(&bench.to_string_lossy(), &["idle-connections", "--connections", "300"]);
    idle.arg("--flick").arg(&flick);
    run::run(idle)?;
    run::run(run::command(&bench.to_string_lossy(), &["shm", "--quick", "--rounds", "1"]))
}
