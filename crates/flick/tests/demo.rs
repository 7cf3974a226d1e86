//! `flick demo --plain`, as CI and a first-time reader run it.

mod common;

/// Runs the demonstration and checks its last line; the number of replies.
fn check(args: &[&str]) -> u64 {
    let (status, stdout, stderr) = common::run(&[&["demo", "--plain"], args].concat());
    assert_eq!(status, 0, "{stdout}\n{stderr}");
    let last = stdout.lines().last().expect("it says something");
    let mut words = last.split([' ', ',']).filter(|word| !word.is_empty());
    let mut number = |name: &str, unit: Option<&str>| -> u64 {
        assert_eq!(words.next(), Some(name), "{last}");
        let number = words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{last}"));
        assert!(unit.is_none() || words.next() == unit, "{last}");
        number
    };
    let (replies, errors) = (number("replies", None), number("errors", None));
    let (p50_us, p99_us) = (number("p50", Some("us")), number("p99", Some("us")));
    assert!(errors == 0 && p50_us <= p99_us, "{last}");
    replies
}

#[test]
fn demo_has_no_wrong_replies() {
    assert!(check(&["--seconds", "2"]) > 100);
}

#[test]
fn demo_with_memcached_backends() {
    assert!(
        check(&["--seconds", "1", "--backends", "memcached", "--connections", "32", "--workers", "2"]) > 100
    );
}
