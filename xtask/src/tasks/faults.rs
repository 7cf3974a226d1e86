//! `cargo xtask faults`: runs every service of `examples` in the simulator under injected faults, once per seed.
//! Promises: seeds count from 0, so that two runs inject the same faults; the first failure prints its seed.
//! Not here: which faults there are and what must hold after them (`crates/flick/tests/simulated`).

use crate::run::{self, Outcome};

const SEEDS_DEFAULT: u64 = 10_000;

/// Settings of glibc's allocator that make it keep freed memory. Each seed builds its service from scratch, so most of
/// the time would go into returning memory to the kernel and mapping it again. Five times as fast.
const KEEP_MEMORY: [(&str, &str); 3] =
    [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "8589934592"), ("MALLOC_ARENA_MAX", "2")];

/// Runs them, service by service on all cores.
pub fn run(args: &[String]) -> Outcome {
    let seeds = parse(args)?;
    let mut cargo =
        run::cargo(&["test", "--profile", "ci", "--package", "flick", "--test", "simulated", "--"]);
    cargo.args(["examples", "hadoop", "--nocapture"]);
    cargo.env("FLICK_SEEDS", seeds.to_string()).envs(KEEP_MEMORY);
    run::run(cargo)
}

fn parse(args: &[String]) -> Result<u64, String> {
    let usage = || "usage: cargo xtask faults [--seeds N]".to_owned();
    match args {
        [] => Ok(SEEDS_DEFAULT),
        [name, value] if name == "--seeds" => value.parse().map_err(|_| usage()),
        _ => Err(usage()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn check(args: &[&str], expected: Option<u64>) {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        assert_eq!(parse(&args).ok(), expected, "{args:?}");
    }

    #[test]
    fn arguments() {
        check(&[], Some(10_000));
        check(&["--seeds", "100000"], Some(100_000));
        check(&["--seeds"], None);
        check(&["--seeds", "many"], None);
        check(&["7"], None);
    }
}
