//! Exchanges on dedicated connections and streamed messages, as scenarios in the simulator and on sockets, and
//! fault-injection runs of them. The engine is written by hand (`tiny.rs`, which also says what the lines mean).

mod bodies;
mod fault_injection;
mod migration;
mod peers;
mod refused;
mod timeouts;
mod tiny;

use std::sync::Arc;

use fault_injection::Faults;
use flick_net::IoKind;
use flick_net::sim::SimConfig;
use flick_testkit::scenario::stage::{Simulated, Sockets, Transport};
use flick_testkit::scenario::{parse, play};
use flick_testkit::service::Subject;
use tiny::Kind;

fn check_with(kind: Kind, text: &str) {
    // Lines are written indented here, which would make them go on with the one before.
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let scenario = parse(&lines.join("\n")).expect("a scenario");
    let subject = Subject { program: tiny::program(kind), engine: Arc::new(tiny::Tiny) };
    let mut stage = Simulated::new(&scenario, &subject).expect("limits that there are");
    if let Err(what) = play(&scenario, &mut stage) {
        panic!("{what}\n{text}");
    }
    for io in [IoKind::Epoll, IoKind::Uring].into_iter().filter(|_| Transport::Tcp.plays(&scenario)) {
        match Sockets::play(&scenario, &subject, io, Transport::Tcp) {
            Ok(true) => {}
            Ok(false) => eprintln!("not played: this machine does not grant {io:?}"),
            Err(what) => panic!("{io:?}: {what}\n{text}"),
        }
    }
}

fn check(text: &str) {
    check_with(Kind::Exclusive, text);
}

#[test]
fn a_connection_is_reused_and_blocks_no_other_client() {
    check(
        r#"timeout response 2000 ms
        client a  sends "get k0\n"
        backend 0 expects "get k0\n"
        client b  sends "get j0\n"
        backend 0 expects "get j0\n", sends "ok\n"
        client b  expects "ok\n", sends "get j1\n"
        backend 0 expects "get j1\n", sends "ok len=2\nhi"
        client b  expects "ok len=2\nhi"
        client a  expects nothing for 5 ms, closes
        client b  closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn requests_of_one_client_run_one_after_another() {
    check(
        r#"backends 2
        client a  sends "get k0\nget k1\nget k0\n"
        backend 0 expects "get k0\n"
        backend 1 expects nothing for 5 ms
        backend 0 sends "ok len=1\n1"
        client a  expects "ok len=1\n1"
        backend 1 expects "get k1\n", sends "ok len=1\n2"
        backend 0 expects "get k0\n", sends "ok len=1\n3"
        client a  expects "ok len=1\n2ok len=1\n3", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn parts_go_on_in_both_directions_as_they_arrive() {
    check(
        r#"client a  sends "put k0 parts\n3\nabc"
        backend 0 expects "put k0 parts\n3\nabc"
        client a  sends "2"
        backend 0 expects nothing for 2 ms
        client a  sends "\nd"
        backend 0 expects "2\nd", sends "ok parts\n1 hop\nx"
        client a  expects "ok parts\n1\nx", sends "e0"
        backend 0 expects "e"
        client a  sends " hop\nget k1\n"
        backend 0 expects "0\n", sends "0\n"
        client a  expects "0\n"
        backend 0 expects "get k1\n", sends "ok\n"
        client a  expects "ok\n", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn what_is_cut_is_not_passed_on() {
    check(
        r#"client a  sends "get k0 hop keep=4 hop\n"
        backend 0 expects "get k0 keep=4\n", sends "ok hop len=asked hop\nfour"
        client a  expects "ok len=asked\nfour", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn a_reply_is_read_with_what_its_request_kept() {
    check(
        r#"client a  sends "get k0 keep=3\nget made0 keep=9\nput k0 len=20000 keep=2\n", sends 20000 bytes
        backend 0 expects "get k0 keep=3\n", sends "ok len=asked\nabc"
        client a  expects "ok len=asked\nabc"
        backend 0 expects "get other0 keep=3\n", sends "ok len=asked\ndef"
        client a  expects "ok len=asked\ndef"
        backend 0 expects "put k0 len=20000 keep=2\n", expects 20000 bytes, sends "ok len=asked\nhi"
        client a  expects "ok len=asked\nhi", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn a_truncated_reply_never_looks_whole() {
    for reply in ["ok len=100\\n12345", "ok parts\\n3\\nab", "ok parts\\n3\\nabc", "ok len=20000\\nabc"] {
        for end in ["closes", "resets"] {
            check(&format!(
                r#"simulator only
                client a  sends "get k0\n"
                backend 0 expects "get k0\n", sends "{reply}"
                client a  expects "{reply}"
                backend 0 {end}
                client a  expects closed
                expect counter truncated == 1
                expect quiet"#
            ));
        }
    }
}

#[test]
fn a_reply_until_the_end_ends_the_client_too() {
    check(
        r#"client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok close\nabc"
        client a  expects "ok close\nabc"
        backend 0 sends 50000 bytes, closes
        client a  expects 50000 bytes, expects closed
        expect counter truncated == 0
        expect quiet"#,
    );
    check(
        r#"client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok close\nabc"
        client a  expects "ok close\nabc"
        backend 0 resets
        client a  expects closed
        expect counter truncated == 1
        expect quiet"#,
    );
}

#[test]
fn a_malformed_body_ends_the_request_and_its_connection() {
    check(
        r#"client a  sends "put k0 parts\n3\nabc"
        backend 0 expects "put k0 parts\n3\nabc"
        client a  sends "x\n"
        backend 0 expects closed
        client a  expects "fail 3\n", expects closed
        expect counter errors_malformed == 1
        expect quiet"#,
    );
    for sent in ["put k0 parts\\nx\\n", "put k0 parts\\n3\\nabcx\\n"] {
        check(&format!(
            r#"simulator only
            client a  sends "{sent}", expects "fail 3\n", expects closed
            expect counter errors_malformed == 1
            expect quiet"#
        ));
    }
    for sent in ["put k0 parts\\n3\\nab", "put k0 parts\\n3\\nabc", "put k0 len=4\\nabc"] {
        check(&format!(
            r#"simulator only
            client a  sends "{sent}"
            backend 0 expects "{sent}"
            client a  half-closes
            backend 0 expects closed
            client a  expects "fail 3\n", expects closed
            expect counter truncated == 1
            expect quiet"#
        ));
    }
    // A client that has begun to receive a reply cannot get an error response.
    check(
        r#"client a  sends "put k0 parts\n3\nabc"
        backend 0 expects "put k0 parts\n3\nabc", sends "ok len=5\nab"
        client a  expects "ok len=5\nab", sends "x\n"
        client a  expects closed
        expect quiet"#,
    );
}

#[test]
fn what_is_not_of_the_grammar_is_answered_for_its_reason() {
    check(
        r#"client a  sends "get k0 !\n"
        client a  expects "fail 3\n", expects closed
        client b  sends "get 0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789\n"
        client b  expects "fail 5\n", expects closed
        expect quiet"#,
    );
}

#[test]
fn h16_a_stale_connection_is_tried_once_more() {
    check(
        r#"client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok\n"
        client a  expects "ok\n", sends "get j0 hop retry\n"
        backend 0 expects "get j0 retry\n", closes
        backend 0 expects "get j0 retry\n", sends "ok\n"
        client a  expects "ok\n"
        expect counter requests_retried == 1
        client a  sends "get l0 retry\n"
        backend 0 expects "get l0 retry\n", resets
        backend 0 expects "get l0 retry\n", closes
        client a  expects "fail 0\n"
        expect counter requests_retried == 2
        client a  closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn h16_what_may_not_be_sent_twice_is_not() {
    // It does not say that it may; or something of a reply has come.
    check(
        r#"client a  sends "get l0\n"
        backend 0 expects "get l0\n", sends "ok\n"
        client a  expects "ok\n", sends "get j0\n"
        backend 0 expects "get j0\n", closes
        client a  expects "fail 0\n", sends "get m0\n"
        backend 0 expects "get m0\n", sends "ok\n"
        client a  expects "ok\n", sends "get n0 retry\n"
        backend 0 expects "get n0 retry\n", sends "o", closes
        client a  expects "fail 0\n", closes
        expect counter requests_retried == 0
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn h14_a_connection_that_says_more_or_ends_is_not_used_again() {
    for reply in ["ok last\\n", "ok\\nok\\n", "ok len=2\\nhiXYZ"] {
        let is_delivered =
            reply.trim_end_matches("XYZ").strip_suffix("ok\\n").filter(|rest| !rest.is_empty());
        let is_delivered = is_delivered.unwrap_or(reply.trim_end_matches("XYZ"));
        check(&format!(
            r#"client a  sends "get k0\n"
            backend 0 expects "get k0\n", sends "{reply}", expects closed
            client a  expects "{is_delivered}", sends "get j0\n"
            backend 0 expects "get j0\n", sends "ok\n"
            client a  expects "ok\n", closes
            wait 20 ms
            expect quiet"#
        ));
    }
}

#[test]
fn h11_an_early_answer_ends_the_upload() {
    // A short rest is taken and dropped; a long one ends the client's connection behind the answer.
    check(
        r#"client a  sends "put k0 len=60000\n", sends 20000 bytes
        backend 0 expects "put k0 len=60000\n", expects 20000 bytes, sends "no\n"
        client a  expects "no\n", sends 40000 bytes, sends "get j0\n"
        backend 0 expects "get j0\n", sends "ok\n"
        client a  expects "ok\n", closes
        wait 20 ms
        expect quiet"#,
    );
    check(
        r#"client a  sends "put k0 len=6000000\n", sends 20000 bytes
        backend 0 expects "put k0 len=6000000\n", expects 20000 bytes, sends "no\n", expects closed
        client a  expects "no\n", expects closed
        expect quiet"#,
    );
}

#[test]
fn h12_an_answer_of_our_own_never_takes_the_body_for_a_request() {
    check(
        r#"client a  sends "put local0 len=7\nget k0\nget local0\n"
        client a  expects "ok len=5\nlocalok len=5\nlocal"
        client a  sends "put local0 parts\n7\nget k0\n0\nget local0\n"
        client a  expects "ok len=5\nlocalok len=5\nlocal"
        client a  sends "put local0 len=9000000\n"
        client a  expects "ok len=5\nlocal", expects closed
        expect quiet"#,
    );
}

#[test]
fn the_last_request_ends_its_session_behind_the_reply() {
    check(
        r#"client a  sends "put k0 last len=3\nabcget k0\n"
        backend 0 expects "put k0 last len=3\nabc", sends "ok\n"
        client a  expects "ok\n", expects closed
        client b  sends "get local0 last\nget local0\n"
        client b  expects "ok len=5\nlocal", expects closed
        expect quiet"#,
    );
}

#[test]
fn a_client_that_disconnects_ends_its_exchange() {
    check(
        r#"client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok len=50000\n", sends 10000 bytes
        client a  expects "ok len=50000\n", expects 10000 bytes, resets
        backend 0 expects closed
        client b  sends "get k0\n"
        backend 0 expects "get k0\n"
        client b  closes
        backend 0 sends "ok\n"
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn asks_have_connections_for_themselves_and_are_answered_whole() {
    check_with(
        Kind::Asks,
        r#"client a  sends "get ask0 hop keep=3\n"
        client b  sends "get ask0\n"
        backend 0 expects "get ask0 keep=3\n", sends "wait more\nok hop len=asked\nabc"
        client a  expects "ok len=asked\nabc"
        backend 0 expects "get ask0\n", sends "ok parts\n3\nab"
        client b  expects nothing for 2 ms
        backend 0 sends "c0\n"
        client b  expects "ok parts\n3\nabc0\n"
        client b  sends "get ask0\n"
        backend 0 expects "get ask0\n", sends "ok parts\n5000\n", sends 20480 bytes
        client b  expects "fail 2\n"
        client b  sends "get ask0\n"
        backend 0 expects "get ask0\n", sends "ok len=20000\n"
        client b  expects "fail 2\n"
        client c  sends "get ask0\n"
        backend 0 expects "get ask0\n"
        client c  resets
        backend 0 expects closed
        client a  closes
        client b  closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn an_idle_connection_is_closed_after_its_timeout() {
    check(
        r#"simulator only
        client a  sends "get k0\n"
        backend 0 expects "get k0\n", sends "ok\n"
        client a  expects "ok\n", closes
        wait 25000 ms
        backend 0 expects nothing for 1 ms
        wait 10000 ms
        backend 0 expects closed
        expect quiet"#,
    );
}

#[test]
fn h10_behind_a_reply_that_says_so_both_directions_are_raw() {
    check(
        r#"client a  sends "up k0\nget"
        backend 0 expects "up k0\n", sends "ok tunnel\nraw"
        client a  expects "ok tunnel\nraw", sends " !\n"
        backend 0 expects "get !\n", sends "1\n"
        client a  expects "1\n", half-closes
        backend 0 sends "2\n"
        client a  expects "2\n"
        backend 0 closes
        client a  expects closed
        expect counter tunnels == 1
        expect counter truncated == 0
        expect quiet"#,
    );
}

#[test]
fn h10_without_it_what_follows_is_a_request() {
    check(
        r#"client a  sends "up k0\nget k1\n"
        backend 0 expects "up k0\n", sends "ok\n"
        backend 0 expects "get k1\n", sends "ok\n"
        client a  expects "ok\nok\n", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn the_end_of_either_side_of_a_tunnel_reaches_the_other() {
    for (first, second) in [("client a", "backend 0"), ("backend 0", "client a")] {
        check(&format!(
            r#"client a  sends "up k0\n"
            backend 0 expects "up k0\n", sends "ok tunnel\n"
            client a  expects "ok tunnel\n"
            {first} resets
            {second} expects closed
            expect quiet"#
        ));
        check(&format!(
            r#"client a  sends "up k0\n"
            backend 0 expects "up k0\n", sends "ok tunnel\n"
            client a  expects "ok tunnel\n"
            {first} sends 300000 bytes
            {second} expects 300000 bytes
            {first} half-closes
            {second} sends 100000 bytes
            {first} expects 100000 bytes
            {second} closes
            {first} expects closed
            expect quiet"#
        ));
    }
}

#[test]
fn what_one_side_of_a_tunnel_sent_before_it_closed_reaches_the_other() {
    for reply in ["ok tunnel\\n", "ok last tunnel\\n"] {
        for (first, second) in [("client a", "backend 0"), ("backend 0", "client a")] {
            // What the second one sends meets a closed connection, which is then reset.
            check(&format!(
                r#"simulator only
                client a  sends "up k0\n"
                backend 0 expects "up k0\n", sends "{reply}"
                client a  expects "{reply}"
                {second} stops reading
                wait 2 ms
                {first} sends 60000 bytes, closes
                wait 20 ms
                {second} sends "more"
                wait 20 ms
                {second} reads again, expects 60000 bytes, expects closed
                wait 20 ms
                expect quiet"#
            ));
        }
    }
}

#[test]
fn a_tunnel_behind_the_last_request_of_a_client_carries_bytes() {
    check(
        r#"client a  sends "up k0 last\nearly"
        backend 0 expects "up k0 last\n", expects nothing for 5 ms, sends "ok last tunnel\n"
        client a  expects "ok last tunnel\n"
        backend 0 expects "early", sends "1"
        client a  expects "1", sends "2"
        backend 0 expects "2"
        client a  half-closes
        backend 0 expects closed, sends "3", closes
        client a  expects "3", expects closed
        expect quiet"#,
    );
}

#[test]
fn a_tunnel_in_which_nothing_moves_ends() {
    check(
        r#"simulator only
        client a  sends "up k0\n"
        backend 0 expects "up k0\n", sends "ok tunnel\n"
        client a  expects "ok tunnel\n", sends "x"
        backend 0 expects "x"
        wait 601000 ms
        client a  expects closed
        backend 0 expects closed
        expect quiet"#,
    );
}

#[test]
fn half_a_tunnel_is_not_kept_for_long() {
    for kind in [Kind::Exclusive, Kind::Raw] {
        check_with(
            kind,
            r#"simulator only
            client a  sends "up k0\n"
            backend 0 expects "up k0\n", sends "ok tunnel\n"
            client a  expects "ok tunnel\n", half-closes
            wait 59000 ms
            client a  expects nothing for 1 ms
            wait 2000 ms
            client a  expects closed
            backend 0 expects closed
            expect quiet"#,
        );
    }
}

#[test]
fn a_draining_worker_does_not_wait_for_tunnels() {
    check(
        r#"client a  sends "up k0\n"
        backend 0 expects "up k0\n", sends "ok tunnel\n"
        client a  expects "ok tunnel\n"
        drain within 5000 ms
        client a  expects closed
        expect finished"#,
    );
}

#[test]
fn what_a_program_builds_is_read_before_it_leaves() {
    check(
        r#"client a  sends "get quiet\nget wrong\nget wrong0\nget local\n"
        client a  expects "fail 0\nfail 0\nok len=5\nlocal"
        backend 0 expects nothing for 5 ms
        expect counter replies_suppressed == 1
        client a  sends "put wrong0 len=3\nabcget local\n"
        client a  expects "fail 0\nok len=5\nlocal", closes
        wait 20 ms
        expect quiet"#,
    );
}

#[test]
fn a_raw_relay_connects_at_once_and_forwards_every_half_close() {
    check_with(
        Kind::Raw,
        r#"client a  expects nothing for 1 ms
        backend 0 sends "hello", expects nothing for 1 ms
        client a  expects "hello", sends "abc"
        backend 0 expects "abc", sends 300000 bytes
        client a  expects 300000 bytes, sends 300000 bytes
        backend 0 expects 300000 bytes
        client a  half-closes
        backend 0 sends "last"
        client a  expects "last"
        backend 0 closes
        client a  expects closed
        expect counter truncated == 0
        expect quiet"#,
    );
    check_with(
        Kind::Raw,
        r#"client a  sends "abc"
        backend 0 expects "abc", sends "def", closes
        client a  expects "def", expects closed
        client b  sends "abc"
        backend 0 expects "abc"
        client b  resets
        backend 0 expects closed
        client c  sends "abc"
        backend 0 expects "abc", resets
        client c  expects closed
        expect quiet"#,
    );
}

#[test]
fn a_backend_that_is_down_ends_a_relay() {
    check_with(
        Kind::Raw,
        r#"simulator only
        backend 0 refuses
        client a  expects "fail 0\n", expects closed
        backend 0 returns
        client b  sends "x"
        backend 0 expects "x"
        client b  closes
        wait 20 ms
        backend 0 closes
        expect quiet"#,
    );
}

#[test]
fn a_session_of_its_own_connections_never_mixes_messages() {
    check_with(
        Kind::Private,
        r#"backends 2
        client a  sends "get k0\nget k1\n"
        client b  sends "get j0\n"
        backend 0 expects "get j0\n", sends "b\n"
        backend 0 expects "get k0\n", sends "ok len=40000\n"
        client a  expects "ok len=40000\n"
        backend 1 expects "get k1\n", sends "one\n"
        client a  expects nothing for 5 ms
        backend 0 sends 40000 bytes
        client a  expects 40000 bytes, expects "one\n"
        client b  expects "b\n", sends "get local0\n"
        client b  expects "ok len=5\nlocal"
        backend 1 sends "push\n"
        client a  expects "push\n", closes
        client b  closes
        wait 20 ms
        backend 0 expects closed
        expect counter truncated == 0"#,
    );
}

#[test]
fn a_run_of_a_relay_forwards_what_messages_by_themselves_would() {
    let (short, built) = (r"get k0\n".repeat(1000), r"get other0 keep=3\n".repeat(1000));
    let changed = short.replace("k0", "made0");
    let mixed = r"get k0 hop\nget l0\nget k1\nput m0 len=3\nabcget n0\n";
    let long = format!(r"put k0 len=120\n{}", "x".repeat(120)).repeat(100);
    check_with(
        Kind::Private,
        &format!(
            r#"backends 2
            client a  sends "get k0\n"
            backend 0 expects "get k0\n"
            client a  sends "get drop0\nget j0\nget made0\nget drop0\nget local0\n{mixed}"
            backend 0 expects "get j0\nget other0 keep=3\nget k0\nget l0\nput m0 len=3\nabcget n0\n"
            backend 1 expects "get k1\n", sends "one\n"
            client a  expects "ok len=5\nlocalone\n"
            client a  sends "{short}{long}{changed}put k0 len=30000\n"
            backend 0 expects "{short}{long}{built}put k0 len=30000\n"
            expect counter requests == 2112
            client a  sends 30000 bytes
            backend 0 expects 30000 bytes
            client a  sends "get k0\nget k0\nget !\n", expects "fail 3\n", expects closed
            backend 0 expects "get k0\nget k0\n", expects closed
            expect counter protocol_errors_client == 1
            expect counter exhausted == 0"#
        ),
    );
}

#[test]
fn a_relay_leg_that_breaks_inside_a_message_ends_the_other_legs() {
    check_with(
        Kind::Private,
        r#"backends 2
        client a  sends "get k0\nget k1\n"
        backend 0 expects "get k0\n"
        backend 1 expects "get k1\n", sends "ok len=40000\n"
        client a  expects "ok len=40000\n"
        backend 1 resets
        client a  expects closed
        backend 0 expects closed
        expect quiet"#,
    );
}

#[test]
fn a_relay_streams_large_messages_and_parts_in_both_directions() {
    check_with(
        Kind::Private,
        r#"client a  sends "put k0 parts\n3\nabc"
        backend 0 expects "put k0 parts\n3\nabc", sends "ok parts\n2\nxy"
        client a  expects "ok parts\n2\nxy", sends "0\nput k0 len=30000\n"
        backend 0 expects "0\n", sends "0 hop\nnext\n"
        client a  expects "0\nnext\n"
        backend 0 expects "put k0 len=30000\n"
        client a  sends 30000 bytes
        backend 0 expects 30000 bytes
        client a  sends "put k0 len=30000\nabc"
        backend 0 expects "put k0 len=30000\nabc"
        client a  half-closes
        backend 0 expects closed
        client a  expects closed
        expect counter truncated == 1
        expect quiet"#,
    );
    check_with(
        Kind::Private,
        r#"client a  sends "get k0\n"
        backend 0 expects "get k0\n"
        client a  sends "get !\n", expects "fail 3\n", expects closed
        backend 0 expects closed
        expect quiet"#,
    );
}

#[test]
fn a_relay_peer_that_does_not_read_stalls_the_other_and_no_memory_grows() {
    check_with(
        Kind::Raw,
        r#"client a  sends "x", stops reading
        backend 0 expects "x", sends 3000000 bytes
        wait 100 ms
        client a  reads again
        client a  expects 3000000 bytes
        backend 0 stops reading
        client a  sends 3000000 bytes
        wait 100 ms
        backend 0 reads again
        backend 0 expects 3000000 bytes, closes
        client a  expects closed
        expect quiet"#,
    );
}

const KINDS: [Kind; 3] = [Kind::Exclusive, Kind::Private, Kind::Raw];

#[test]
fn every_byte_reaches_its_client_on_a_quiet_network() {
    let faults = Faults {
        sim: SimConfig::default(),
        misbehaving_per_mille: 0,
        resets_when_sent: false,
        drains: false,
        crowded: false,
    };
    for kind in KINDS {
        fault_injection::check(100, kind, &faults);
    }
}

#[test]
fn every_byte_reaches_its_client_however_bytes_are_cut_and_delayed() {
    let faults = Faults {
        sim: SimConfig::hostile(),
        misbehaving_per_mille: 0,
        resets_when_sent: false,
        drains: false,
        crowded: false,
    };
    for kind in KINDS {
        fault_injection::check(100, kind, &faults);
    }
}

#[test]
fn nothing_is_left_behind_whatever_servers_do() {
    let faults = Faults {
        sim: SimConfig::hostile(),
        misbehaving_per_mille: 200,
        resets_when_sent: true,
        drains: false,
        crowded: false,
    };
    let resets = SimConfig { reset_per_mille: 150, ..SimConfig::hostile() };
    let resets = Faults { sim: resets, ..faults.clone() };
    for kind in KINDS {
        fault_injection::check(200, kind, &faults);
        fault_injection::check(100, kind, &resets);
    }
}

#[test]
fn few_buffers_end_in_answers_or_closed_connections() {
    let sim = SimConfig { split_bytes_max: 5_000, ..SimConfig::hostile() };
    let faults =
        Faults { sim, misbehaving_per_mille: 100, resets_when_sent: true, drains: false, crowded: true };
    for kind in KINDS {
        fault_injection::check(150, kind, &faults);
    }
}

#[test]
fn draining_at_any_time_ends() {
    let faults = Faults {
        sim: SimConfig::hostile(),
        misbehaving_per_mille: 100,
        resets_when_sent: true,
        drains: true,
        crowded: false,
    };
    for kind in KINDS {
        fault_injection::check(100, kind, &faults);
    }
}

#[test]
fn the_disconnect_of_a_silent_waiting_client_is_noticed() {
    check(
        r#"client a  sends "get k0\n"
        backend 0 expects "get k0\n"
        client a  resets
        backend 0 expects closed
        expect quiet"#,
    );
}
