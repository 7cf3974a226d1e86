//! Backends that refuse connections: when that takes them down for other requests. Backends that close connections
//! which are ready for a request.

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

#[test]
fn request_on_a_spare_connection_that_its_backend_had_closed_failed() {
    // Where a connection was lost, one is made that waits for a request.
    check(
        r#"simulator only
        client a  sends "get k0\n"
        backend 0 expects "get k0\n", closes
        client a  expects "fail 0\n", sends "get j0 retry\n"
        backend 0 expects "get j0 retry\n", closes
        backend 0 expects "get j0 retry\n", sends "ok\n"
        client a  expects "ok\n", closes
        expect counter requests_retried == 1
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn h16_request_on_a_fresh_connection_is_not_sent_again() {
    check(
        r#"simulator only
        client a  sends "get k0 retry\n"
        backend 0 expects "get k0 retry\n", closes
        client a  expects "fail 0\n", closes
        expect counter requests_retried == 0
        wait 20 ms
        expect quiet"#,
    );
}
