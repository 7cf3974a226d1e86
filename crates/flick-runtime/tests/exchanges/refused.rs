//! Backends that refuse connections: when that takes them down for other requests.

use super::check;

/// Plays a scenario with a backend that has a connection open, has reset another one, and refuses further ones.
fn check_busy(then: &str) {
    check(&format!(
        r#"simulator only
        wait 5 ms
        client a  sends "get k0\n"
        client b  sends "get j0\n"
        backend 0 expects "get j0\n"
        backend 0 expects "get k0\n", resets
        client a  expects "fail 0\n"
        backend 0 refuses
        {then}"#
    ));
}

#[test]
fn a_backend_that_is_down_is_known_and_connected_to_again() {
    check(
        r#"simulator only
        backend 0 refuses
        wait 50 ms
        client a  sends "get k0\n"
        client a  expects "fail 0\n"
        backend 0 returns
        wait 1000 ms
        client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok\n"
        client a  expects "ok\n", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn one_refused_connection_took_a_busy_backend_down_for_others() {
    check_busy(
        r#"client c  sends "get m0\n"
        client c  expects "fail 0\n"
        backend 0 returns
        client d  sends "get n0\n"
        backend 0 expects "get n0\n", sends "ok\n"
        client d  expects "ok\n""#,
    );
}

#[test]
fn a_busy_backend_that_refuses_five_connections_is_down() {
    let refused: String = (0..5)
        .map(|at| format!("client c sends \"get m{at}\\n\"\nclient c expects \"fail 0\\n\"\n"))
        .collect();
    check_busy(&format!(
        r#"{refused}backend 0 returns
        client c  sends "get m5\n"
        client c  expects "fail 0\n""#,
    ));
}
