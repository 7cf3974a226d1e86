//! The store against the conformance tests of libmemcached (Debian package `libmemcached-tools`).

use std::process::Command;

use flick_load::store::EmbeddedStore;

#[test]
fn the_store_passes_every_binary_test() {
    let store =
        EmbeddedStore::start("127.0.0.1:0".parse().expect("a literal address")).expect("a store starts");
    let port = store.addr().port().to_string();
    let output = Command::new("memccapable")
        .args(["-b", "-h", "127.0.0.1", "-p", &port])
        .output()
        .expect("memccapable runs: install libmemcached-tools");
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(report.matches("[pass]").count(), 27, "{report}");
    assert!(output.status.success() && !report.contains("[FAIL]"), "{report}");
}
