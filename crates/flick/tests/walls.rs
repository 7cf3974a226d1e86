//! The walls between the crates, checked from `cargo metadata`: who may know whom, and who may do I/O.
//! A failure here is a question about the architecture, not about a line of `Cargo.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Crates of ours that each crate of ours may depend on. Tests of a crate may use more.
const EDGES: &[(&str, &[&str])] = &[
    ("flick-syntax", &[]),
    ("flick-check", &["flick-syntax", "flick-abi"]),
    ("flick-doc", &["flick-syntax"]),
    // What a dictionary costs is known by who allocates it; the certificate asks there.
    ("flick-ir", &["flick-abi", "flick-dict"]),
    ("flick-lower", &["flick-check", "flick-ir", "flick-abi"]),
    ("flick-codegen", &["flick-ir", "flick-abi"]),
    (
        "flick-compiler",
        &["flick-abi", "flick-check", "flick-codegen", "flick-ir", "flick-lower", "flick-syntax"],
    ),
    ("flick-abi", &[]),
    ("flick-buffers", &[]),
    // How a sleeping thread is called is modelled where rings are.
    ("flick-net", &["flick-buffers", "flick-ring", "flick-shm"]),
    ("flick-dict", &["flick-abi"]),
    ("flick-ring", &[]),
    // A client uses it without the platform.
    ("flick-shm", &[]),
    // It runs inside of programs that are not ours, without `std`.
    ("flick-preload", &[]),
    ("flick-alloc-counter", &[]),
    // It knows what there is to see, not who has it.
    ("flick-admin", &["flick-stats"]),
    (
        "flick-runtime",
        &["flick-abi", "flick-buffers", "flick-dict", "flick-net", "flick-ring", "flick-stats"],
    ),
    ("flick-stats", &[]),
    // It models a server; which knobs this machine has is the command line's.
    ("flick-tune", &[]),
    ("flick-discovery", &["flick-abi", "flick-net", "flick-runtime"]),
    // It speaks with services as their clients do, through shared memory too.
    ("flick-load", &["flick-shm"]),
    // Its simulated service drives the platform from outside, as a program's peers do; it knows nothing of the
    // compiler.
    ("flick-testkit", &["flick-abi", "flick-buffers", "flick-net", "flick-runtime", "flick-shm"]),
];

/// Crates at the top, which nothing depends on and which may know everybody.
const TOPS: &[&str] = &["flick", "flick-fuzz", "bench", "xtask"];

/// Crates for I/O, which language crates and crates that both sides see must not reach.
const IO_CRATES: &[&str] =
    &["libc", "rustix", "io-uring", "tracing", "signal-hook", "mio", "tokio", "socket2", "nix"];

/// Crates without I/O. `flick-codegen` maps memory through Cranelift and is not among them.
const PURE: &[&str] = &[
    "flick-syntax",
    "flick-check",
    "flick-doc",
    "flick-ir",
    "flick-lower",
    "flick-abi",
    "flick-dict",
    "flick-tune",
];

fn metadata() -> Metadata {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let locked = ["--locked".to_owned(), "--filter-platform=x86_64-unknown-linux-gnu".to_owned()];
    MetadataCommand::new()
        .manifest_path(manifest)
        .other_options(locked)
        .exec()
        .expect("cargo describes the workspace")
}

/// Direct dependencies of each workspace crate, without those of tests.
fn direct(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let packages = metadata.workspace_packages();
    let names = |package: &&cargo_metadata::Package| {
        let normal =
            package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development);
        (package.name.to_string(), normal.map(|dependency| dependency.name.clone()).collect())
    };
    packages.iter().map(names).collect()
}

#[test]
fn crates_depend_only_on_allowed_crates() {
    let direct = direct(&metadata());
    let ours: BTreeSet<&String> = direct.keys().collect();
    let table: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for (name, dependencies) in &direct {
        if TOPS.contains(&name.as_str()) {
            continue;
        }
        let allowed =
            table.get(name.as_str()).unwrap_or_else(|| panic!("`{name}` has no line in the table of walls"));
        for dependency in dependencies.iter().filter(|dependency| ours.contains(dependency)) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "a wall: `{name}` must not depend on `{dependency}`"
            );
        }
    }
}

#[test]
fn only_the_code_generator_depends_on_cranelift() {
    for (name, dependencies) in direct(&metadata()) {
        let names_it = dependencies.iter().any(|dependency| dependency.starts_with("cranelift"));
        assert!(!names_it || name == "flick-codegen", "`{name}` names Cranelift");
    }
}

#[test]
fn language_crates_do_no_io() {
    let metadata = metadata();
    let resolve = metadata.resolve.as_ref().expect("metadata was asked for with dependencies");
    let name_of: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let edges: BTreeMap<_, Vec<_>> = resolve
        .nodes
        .iter()
        .map(|node| {
            let normal = node
                .deps
                .iter()
                .filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal));
            (&node.id, normal.map(|dep| &dep.pkg).collect())
        })
        .collect();
    for pure in PURE {
        let (root, _) =
            name_of.iter().find(|(_, name)| *name == pure).expect("the crate is in the workspace");
        let mut reached = BTreeSet::from([*root]);
        let mut open = vec![*root];
        while let Some(id) = open.pop() {
            for next in edges.get(id).into_iter().flatten() {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        let found: Vec<_> =
            reached.iter().map(|id| name_of[*id]).filter(|name| IO_CRATES.contains(name)).collect();
        assert!(found.is_empty(), "`{pure}` reaches {found:?}");
    }
}

#[test]
fn every_dependency_has_a_reason() {
    let metadata = metadata();
    let deny =
        std::fs::read_to_string(metadata.workspace_root.join("deny.toml")).expect("deny.toml is in the root");
    let reasons: BTreeMap<&str, &str> = deny
        .lines()
        .filter_map(|line| line.strip_prefix("# ")?.split_once(": "))
        .filter(|(name, _)| !name.contains(' '))
        .collect();
    let packages = metadata.workspace_packages();
    let foreign = packages
        .iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.path.is_none());
    let used: BTreeSet<&str> = foreign.map(|dependency| dependency.name.as_str()).collect();
    for name in &used {
        assert!(
            reasons.contains_key(name),
            "deny.toml gives no reason for `{name}`: add a line `# {name}: why`"
        );
    }
    for (name, reason) in &reasons {
        assert!(
            used.contains(name),
            "deny.toml gives a reason for `{name}`, which nothing uses: remove the line"
        );
        assert!(reason.len() >= 15, "the reason for `{name}` says nothing");
    }
}
