//! Timeouts: replies that stop or are truncated, requests that exceed the total timeout, clients queued behind too
//! many.

use super::{Kind, check, check_with};

#[test]
fn h15_what_came_of_a_reply_is_passed_on_though_its_backend_closes_at_once() {
    for (reply, end) in
        [("ok len=9\\nabc", "closes"), ("ok len=9\\nabc", "resets"), ("ok parts\\n3\\nabc2\\nd", "closes")]
    {
        check(&format!(
            r#"client a  sends "get k0\n"
            backend 0 expects "get k0\n", sends "{reply}", {end}
            client a  expects "{reply}", expects closed
            client b  sends "get j0\n"
            backend 0 expects "get j0\n", sends "ok\n"
            client b  expects "ok\n", closes
            wait 20 ms
            expect quiet"#
        ));
    }
}

#[test]
fn a_reply_that_stops_in_its_middle_has_so_long_for_its_next_piece() {
    check(
        r#"simulator only
        timeout stream_idle 100 ms
        timeout response 50 ms
        client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok len=6\nab"
        client a  expects "ok len=6\nab"
        wait 90 ms
        backend 0 sends "cd"
        client a  expects "cd", expects nothing for 90 ms
        client a  expects closed within 20 ms
        backend 0 expects closed
        expect quiet"#,
    );
}

#[test]
fn a_request_has_so_long_in_all_whatever_comes_of_it_meanwhile() {
    // Told if nothing of a reply has been passed on, cut if something has; an upload counts, too.
    check(
        r#"simulator only
        timeout total 100 ms
        timeout response 80 ms
        client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok len=60\nab"
        client a  expects "ok len=60\nab"
        wait 70 ms
        backend 0 sends "cd"
        client a  expects "cd", expects nothing for 20 ms
        client a  expects closed within 20 ms
        client b  sends "put k0 len=60\nab"
        backend 0 expects closed
        backend 0 expects "put k0 len=60\nab"
        wait 60 ms
        client b  sends "cd"
        backend 0 expects "cd"
        client b  expects nothing for 30 ms, expects "fail 8\n" within 20 ms
        client b  expects closed
        wait 20 ms
        expect counter client_request_timeouts == 1
        expect quiet"#,
    );
}

#[test]
fn a_slow_upload_that_exceeds_the_total_timeout_is_not_blamed_on_the_backend() {
    check(
        r#"simulator only
        timeout total 100 ms
        client a  sends "put k0 len=60\nab"
        backend 0 expects "put k0 len=60\nab"
        wait 80 ms
        client a  sends "cd", expects "fail 8\n" within 30 ms, expects closed
        client b  sends "put k0 len=2\nab"
        backend 0 expects "cd", expects closed
        backend 0 expects "put k0 len=2\nab"
        client b  expects "fail 1\n" within 110 ms
        client b  closes
        wait 20 ms
        expect counter client_request_timeouts == 1
        expect counter errors_timeout == 1
        expect quiet"#,
    );
}

#[test]
fn a_client_beyond_max_pending_gets_an_overload_response_at_once() {
    check(
        r#"simulator only
        limit max_connections_per_backend 1
        limit max_pending_per_backend 1
        client a  sends "get k0\n"
        backend 0 expects "get k0\n"
        client b  sends "get k1\n"
        backend 0 expects "get k1\n"
        client c  sends "get k2\n"
        wait 5 ms
        client d  sends "get k3\n"
        client d  expects "fail 2\n" within 5 ms
        backend 0 sends "ok\n"
        client b  expects "ok\n", closes
        backend 0 expects "get k2\n", sends "ok\n"
        client c  expects "ok\n", closes
        client d  closes
        client a  resets
        wait 20 ms
        expect counter requests_shed == 1
        expect quiet"#,
    );
}

#[test]
fn a_relay_is_not_idle_while_its_backend_sends_short_messages() {
    check_with(
        Kind::Private,
        r#"simulator only
        client a  sends "get k0\n"
        backend 0 expects "get k0\n"
        client a  half-closes
        wait 40000 ms
        backend 0 sends "push\n"
        client a  expects "push\n"
        wait 40000 ms
        backend 0 sends "push\n"
        client a  expects "push\n"
        backend 0 closes
        client a  expects closed
        expect quiet"#,
    );
}

#[test]
fn a_body_may_pause_for_longer_than_a_reply_may_take() {
    check(
        r#"simulator only
        timeout response 2000 ms
        timeout stream_idle 30000 ms
        client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok parts\n"
        client a  expects "ok parts\n"
        wait 20000 ms
        backend 0 sends "1\nx"
        client a  expects "1\nx"
        wait 31000 ms
        client a  expects closed
        client b  sends "get k0\n"
        backend 0 expects "get k0\n"
        wait 2100 ms
        client b  expects "fail 1\n", closes
        wait 20 ms
        expect quiet"#,
    );
}
