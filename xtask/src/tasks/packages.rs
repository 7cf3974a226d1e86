//! The Debian packages that tests use as real peers.
//! Promises: as root installs what is missing; otherwise names it and fails. Nothing is skipped in silence.

use crate::run::{self, Outcome};

/// A package and how to check that it is installed.
struct Package {
    name: &'static str,
    why: &'static str,
    probe: Probe,
}

/// Check that a package is installed.
enum Probe {
    /// This program starts; its exit status does not matter, some do not exit with 0 for `--version`.
    Starts(&'static [&'static str]),
    /// This command succeeds: the program alone may be installed without the module that is needed.
    Succeeds(&'static [&'static str]),
}

impl Probe {
    fn is_met(&self) -> bool {
        match self {
            Self::Starts(line) => run::command(line[0], &line[1..]).output().is_ok(),
            Self::Succeeds(line) => run::succeeds(run::command(line[0], &line[1..])),
        }
    }
}

const PACKAGES: &[Package] = &[
    Package {
        name: "memcached",
        why: "real backends behind the proxy",
        probe: Probe::Starts(&["memcached", "-V"]),
    },
    Package {
        name: "libmemcached-tools",
        why: "memccapable and memcslap, independent clients",
        probe: Probe::Starts(&["memccapable", "-V"]),
    },
    Package {
        name: "python3-pymemcache",
        why: "a client library of the text protocol",
        probe: Probe::Succeeds(&["/usr/bin/python3", "-c", "import pymemcache"]),
    },
    Package {
        name: "python3-pylibmc",
        why: "the client library libmemcached, with both protocols",
        probe: Probe::Succeeds(&["/usr/bin/python3", "-c", "import pylibmc"]),
    },
    Package {
        name: "mosquitto",
        why: "an MQTT broker, behind a grammar that the library does not have",
        probe: Probe::Starts(&["/usr/sbin/mosquitto", "-h"]),
    },
    Package {
        name: "mosquitto-clients",
        why: "clients of MQTT that we did not write",
        probe: Probe::Starts(&["mosquitto_pub", "--version"]),
    },
    Package {
        name: "nutcracker",
        why: "twemproxy, whose placement of keys ours must equal",
        probe: Probe::Starts(&["nutcracker", "-V"]),
    },
    Package {
        name: "redis-server",
        why: "real shards behind the proxy of Redis",
        probe: Probe::Starts(&["redis-server", "--version"]),
    },
    Package {
        name: "redis-tools",
        why: "redis-cli and redis-benchmark, independent clients",
        probe: Probe::Starts(&["redis-cli", "--version"]),
    },
    Package {
        name: "python3-venv",
        why: "a client from PyPI in an environment of its own",
        probe: Probe::Succeeds(&["python3", "-c", "import venv, ensurepip"]),
    },
    Package {
        name: "nginx-light",
        why: "a real web server behind the balancers",
        probe: Probe::Starts(&["nginx", "-v"]),
    },
    Package {
        name: "apache2-bin",
        why: "a web server and balancer that is stricter than nginx",
        probe: Probe::Starts(&["apache2", "-v"]),
    },
    Package {
        name: "haproxy",
        why: "the strictest HTTP parser of the three servers",
        probe: Probe::Starts(&["haproxy", "-v"]),
    },
    Package {
        name: "varnish",
        why: "varnishtest: independent mock clients and servers",
        probe: Probe::Starts(&["varnishtest", "-h"]),
    },
    Package { name: "curl", why: "an independent HTTP client", probe: Probe::Starts(&["curl", "-V"]) },
    Package {
        name: "chromium",
        why: "a real browser for the pages of `flick doc` and of the admin endpoint",
        probe: Probe::Starts(&["chromium", "--version"]),
    },
    Package {
        name: "faketime",
        why: "a clock that jumps for one process",
        probe: Probe::Starts(&["faketime", "--version"]),
    },
    Package {
        name: "slowhttptest",
        why: "clients that are slow in four ways, thousands of them",
        probe: Probe::Starts(&["slowhttptest", "-h"]),
    },
    Package {
        name: "python3-prometheus-client",
        why: "an independent parser of OpenMetrics",
        probe: Probe::Succeeds(&["/usr/bin/python3", "-c", "import prometheus_client.openmetrics.parser"]),
    },
    Package {
        name: "prometheus",
        why: "promtool, which lints the classic text format",
        probe: Probe::Starts(&["promtool", "--version"]),
    },
    Package {
        name: "gdb",
        why: "a debugger that must show the names of compiled functions",
        probe: Probe::Starts(&["gdb", "--version"]),
    },
    Package {
        name: "linux-perf",
        why: "a profiler that must show the names of compiled functions",
        probe: Probe::Starts(&["perf", "--version"]),
    },
    Package {
        name: "strace",
        why: "the address from which a program makes each of its system calls",
        probe: Probe::Starts(&["strace", "-V"]),
    },
    Package { name: "wrk", why: "a loader with many connections", probe: Probe::Starts(&["wrk", "-v"]) },
    Package {
        name: "apache2-utils",
        why: "ab, a client with an event loop of its own",
        probe: Probe::Starts(&["ab", "-V"]),
    },
    Package {
        name: "postgresql",
        why: "a server that forks for each connection, and pgbench",
        probe: Probe::Succeeds(&["sh", "-c", "ls /usr/lib/postgresql/*/bin/pgbench"]),
    },
    Package {
        name: "php-fpm",
        why: "a server of FastCGI behind nginx",
        probe: Probe::Succeeds(&["sh", "-c", "ls /usr/sbin/php-fpm*"]),
    },
    Package {
        name: "nodejs",
        why: "a program that makes code as it runs, and passes connections on",
        probe: Probe::Starts(&["node", "--version"]),
    },
    Package {
        name: "openjdk-17-jdk-headless",
        why: "a server and a client of Java",
        probe: Probe::Succeeds(&["sh", "-c", "ls /usr/lib/jvm/java-17-openjdk-*/bin/javac"]),
    },
    Package {
        name: "iperf3",
        why: "streams of TCP in both directions",
        probe: Probe::Starts(&["iperf3", "--version"]),
    },
    Package {
        name: "sockperf",
        why: "a ping-pong over TCP that counts lost, doubled and reordered messages",
        probe: Probe::Starts(&["sockperf", "--version"]),
    },
    Package {
        name: "openssl",
        why: "a client and a server of TLS",
        probe: Probe::Starts(&["openssl", "version"]),
    },
    Package {
        name: "openssh-client",
        why: "a client of ssh, and keys",
        probe: Probe::Starts(&["ssh", "-V"]),
    },
    Package {
        name: "openssh-server",
        why: "a server of ssh with processes of several users",
        probe: Probe::Starts(&["/usr/sbin/sshd", "-V"]),
    },
];

/// Checks that every package is installed; as root, installs the missing ones.
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
    // An old package index may name versions that the mirror no longer has.
    apt(&["update", "-q"])?;
    apt(&[&["install", "-q", "-y", "--no-install-recommends"], names.as_slice()].concat())?;
    match self::missing().first() {
        None => Ok(()),
        Some(package) => Err(format!("`{}` was installed, but its programs are not in PATH", package.name)),
    }
}

fn missing() -> Vec<&'static Package> {
    PACKAGES.iter().filter(|package| !package.probe.is_met()).collect()
}

fn apt(args: &[&str]) -> Outcome {
    let mut apt = run::command("apt-get", args);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    run::run(apt)
}

#[cfg(test)]
mod tests {
    use super::{PACKAGES, Probe};

    #[test]
    fn a_package_that_an_interpreter_is_asked_for_was_never_installed() {
        assert!(Probe::Starts(&["sh", "-c", "exit 1"]).is_met());
        assert!(!Probe::Succeeds(&["sh", "-c", "exit 1"]).is_met());
        assert!(!Probe::Succeeds(&["no such program"]).is_met());
        for package in PACKAGES {
            let Probe::Starts(line) = &package.probe else { continue };
            assert!(!line.contains(&"-c"), "{}: `{}` starts without it", package.name, line[0]);
        }
    }
}
