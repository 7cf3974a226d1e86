//! Forwarding of request bodies: as they arrive, or once they are complete if their grammar requires the whole body.

use super::check;

#[test]
fn a_short_body_that_trickled_held_a_connection_that_others_needed() {
    check(
        r#"limit max_connections_per_backend 1
        client a  sends "put k0 whole len=6\nab"
        backend 0 expects nothing for 5 ms
        client b  sends "get j0\n"
        backend 0 expects "get j0\n", sends "ok\n"
        client b  expects "ok\n", closes
        client a  sends "cd"
        backend 0 expects nothing for 5 ms
        client a  sends "efget k1\n"
        backend 0 expects "put k0 whole len=6\nabcdef", sends "ok\n"
        client a  expects "ok\n"
        backend 0 expects "get k1\n", sends "ok\n"
        client a  expects "ok\n", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn a_long_body_or_one_in_parts_is_not_waited_for() {
    check(
        r#"client a  sends "put k0 whole len=20000\nab"
        backend 0 expects "put k0 whole len=20000\nab", sends "no last\n"
        client a  expects "no last\n", closes
        client b  sends "put k0 whole parts\n3\nab"
        backend 0 expects "put k0 whole parts\n3\nab"
        client b  resets
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn a_client_that_ends_inside_a_short_body_reaches_no_backend() {
    for end in ["closes", "resets"] {
        check(&format!(
            r#"client a  sends "put k0 whole len=6\nab", {end}
            backend 0 expects nothing for 20 ms
            expect quiet"#
        ));
    }
}

#[test]
fn a_client_that_half_closes_inside_a_short_body_gets_an_answer() {
    check(
        r#"client a  sends "get k0\nput k0 whole len=6\nab", half-closes
        backend 0 expects "get k0\n", sends "ok len=1\n!"
        client a  expects "ok len=1\n!fail 3\n", expects closed
        backend 0 expects nothing for 20 ms
        expect counter truncated == 1
        expect counter requests == 2
        expect quiet"#,
    );
}

#[test]
fn a_drain_answers_a_client_inside_a_short_body() {
    check(
        r#"simulator only
        client a  sends "put k0 whole len=6\nab"
        wait 5 ms
        drain within 50 ms
        client a  expects "fail 0\n", expects closed
        expect quiet"#,
    );
}

#[test]
fn clients_were_closed_whose_short_bodies_grew_while_buffers_were_few() {
    let begin = |n: usize| format!("client c{n} sends \"put k0 whole len=3000\\nab\"\n");
    let go_on = |n: usize| format!("client c{n} sends 2500 bytes\n");
    let each = |clients: std::ops::Range<usize>, line: &dyn Fn(usize) -> String| -> String {
        clients.map(line).collect()
    };
    check(&format!(
        r#"simulator only
        backends 1
        limit buffer_memory 65536
        limit max_connections 100
        {}{}
        wait 5 ms
        {}
        wait 5 ms
        expect counter streamed == 0
        {}
        wait 5 ms
        expect counter exhausted == 0
        expect counter connections_open == 80
        {}
        wait 20 ms
        expect quiet"#,
        each(0..50, &begin),
        each(0..50, &go_on),
        each(50..80, &begin),
        each(50..80, &go_on),
        each(0..80, &|n| format!("client c{n} resets\n")),
    ));
}

#[test]
fn bodies_are_not_waited_for_while_buffers_are_few() {
    let crowd: String =
        (0..60).map(|n| format!("client c{n} sends \"put k0 whole len=2000\\nab\"\n")).collect();
    let leave: String = (0..60).map(|n| format!("client c{n} resets\n")).collect();
    check(&format!(
        r#"simulator only
        backends 2
        limit buffer_memory 65536
        {crowd}
        wait 5 ms
        client z  sends "put k1 whole len=6\nab"
        backend 1 expects "put k1 whole len=6\nab"
        client z  sends "cdef"
        backend 1 expects "cdef", sends "ok\n"
        client z  expects "ok\n", closes
        {leave}
        wait 20 ms
        expect quiet"#
    ));
}

#[test]
fn a_request_is_sent_before_its_body_has_arrived() {
    check(
        r#"client a  sends "put k0 len=6\nab"
        backend 0 expects "put k0 len=6\nab", sends "wait more\n"
        client a  expects "wait more\n", sends "cdef"
        backend 0 expects "cdef", sends "ok\n"
        client a  expects "ok\n", closes
        wait 20 ms
        expect quiet"#,
    );
}
