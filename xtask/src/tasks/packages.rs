//! The Debian packages that tests use as real peers.
//! Promises: as root installs what is missing; otherwise names it and fails. Nothing is skipped in silence.

use crate::run::{self, Outcome};

/// A package and how to see that it is there.
struct Package {
    name: &'static str,
    why: &'static str,
    probe: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package { name: "memcached", why: "real backends behind the proxy", probe: &["memcached", "-V"] },
    Package {
        name: "libmemcached-tools",
        why: "memccapable and memcslap, clients that we did not write",
        probe: &["memccapable", "-V"],
    },
    Package {
        name: "mosquitto",
        why: "an MQTT broker, behind a grammar that the library does not have",
        probe: &["/usr/sbin/mosquitto", "-h"],
    },
    Package {
        name: "mosquitto-clients",
        why: "clients of MQTT that we did not write",
        probe: &["mosquitto_pub", "--version"],
    },
    Package {
        name: "nutcracker",
        why: "twemproxy, whose placement of keys ours must equal",
        probe: &["nutcracker", "-V"],
    },
    Package {
        name: "redis-server",
        why: "real shards behind the proxy of Redis",
        probe: &["redis-server", "--version"],
    },
    Package {
        name: "redis-tools",
        why: "redis-cli and redis-benchmark, clients that we did not write",
        probe: &["redis-cli", "--version"],
    },
    Package {
        name: "python3-venv",
        why: "a client from PyPI in an environment of its own",
        probe: &["python3", "-c", "import venv, ensurepip"],
    },
    Package { name: "nginx-light", why: "a real web server behind the balancers", probe: &["nginx", "-v"] },
    Package { name: "apache2-bin", why: "as nginx, with opinions of its own", probe: &["apache2", "-v"] },
    Package {
        name: "haproxy",
        why: "as nginx, the strictest reader of the three",
        probe: &["haproxy", "-v"],
    },
    Package {
        name: "varnish",
        why: "varnishtest: mock clients and servers that we did not write",
        probe: &["varnishtest", "-h"],
    },
    Package { name: "curl", why: "an HTTP client that we did not write", probe: &["curl", "-V"] },
    Package {
        name: "chromium",
        why: "a real browser for the pages of `flick doc` and of the admin side",
        probe: &["chromium", "--version"],
    },
    Package {
        name: "slowhttptest",
        why: "clients that are slow in four ways, thousands of them",
        probe: &["slowhttptest", "-h"],
    },
    Package {
        name: "python3-prometheus-client",
        why: "a reader of OpenMetrics that we did not write",
        probe: &["/usr/bin/python3", "-c", "import prometheus_client.openmetrics.parser"],
    },
    Package {
        name: "gdb",
        why: "a debugger that is to know compiled functions",
        probe: &["gdb", "--version"],
    },
    Package {
        name: "linux-perf",
        why: "a profiler that is to know compiled functions",
        probe: &["perf", "--version"],
    },
    Package { name: "wrk", why: "a loader with many connections", probe: &["sh", "-c", "command -v wrk"] },
];

/// Sees to it that every package is there.
pub fn ensure() -> Outcome {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|package| package.name).collect();
    if run::output(run::command("id", &["-u"]))?.trim() != "0" {
        let lines: Vec<_> =
            missing.iter().map(|package| format!("  {}: {}", package.name, package.why)).collect();
        return Err(format!(
            "tests need Debian packages that are not installed:\n{}\nrun: sudo apt-get install {}",
            lines.join("\n"),
            names.join(" ")
        ));
    }
    // An index that is old may name versions the mirror no longer has.
    apt(&["update", "-q"])?;
    apt(&[&["install", "-q", "-y", "--no-install-recommends"], names.as_slice()].concat())?;
    match self::missing().first() {
        None => Ok(()),
        Some(package) => Err(format!("`{}` was installed, but its programs are not in PATH", package.name)),
    }
}

fn missing() -> Vec<&'static Package> {
    PACKAGES
        .iter()
        .filter(|package| {
            let probe = run::command(package.probe[0], &package.probe[1..]);
            // What matters is that the program is there; some print their version with a status of their own.
            if package.probe[0] == "python3" { !run::succeeds(probe) } else { !starts(probe) }
        })
        .collect()
}

fn starts(mut command: std::process::Command) -> bool {
    command.output().is_ok()
}

fn apt(args: &[&str]) -> Outcome {
    let mut apt = run::command("apt-get", args);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    run::run(apt)
}
