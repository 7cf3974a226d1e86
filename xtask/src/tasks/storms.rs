//! `cargo xtask storms`: every service of `examples` through as many storms of faults as one asks for, in the simulator.
//! Promises: seeds from 0 on, so that two runs play the same; the first that breaks a promise is told with its seed.
//! Not here: what a storm is and what must hold after it (`crates/flick/tests/simulated`).

use crate::run::{self, Outcome};

const SEEDS_DEFAULT: u64 = 10_000;

/// A seed begins with a service whose tables are laid out anew, so most of its time would go into giving memory back
/// to the system and getting it again: the allocator keeps it. Five times as fast.
const KEEP_MEMORY: [(&str, &str); 3] =
    [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "8589934592"), ("MALLOC_ARENA_MAX", "2")];

/// Plays them, service by service on all cores.
pub fn run(args: &[String]) -> Outcome {
    let seeds = parse(args)?;
    let mut cargo =
        run::cargo(&["test", "--profile", "ci", "--package", "flick", "--test", "simulated", "--"]);
    cargo.args(["examples", "hadoop", "--nocapture"]);
    cargo.env("FLICK_SEEDS", seeds.to_string()).envs(KEEP_MEMORY);
    run::run(cargo)
}

fn parse(args: &[String]) -> Result<u64, String> {
    let usage = || "usage: cargo xtask storms [--seeds N]".to_owned();
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
