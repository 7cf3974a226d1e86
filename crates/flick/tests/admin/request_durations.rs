//! The duration of requests: each request is measured once.

use super::common::service::Service;
use super::common::{client, wait};
use super::{ask, metrics};

const STORE: &str = "examples/key_value_server/key_value_server.flick";

#[test]
fn each_reply_to_a_get_of_several_keys_was_measured_as_a_request() {
    for engine in ["native", "interpreter"] {
        let args = ["run", STORE, "--listen", "client=127.0.0.1:0", "--workers", "1", "--admin", "0"];
        let service = Service::start(&[&args[..], &["--engine", engine]].concat());
        let admin = service.admin();
        let mut client = client::connect(service.address);
        ask(&mut client, "set a 0 0 1\r\nx\r\n", "STORED\r\n");
        ask(&mut client, "set b 0 0 1\r\ny\r\n", "STORED\r\n");
        ask(&mut client, "get a b missing a\r\nget missing\r\n", "END\r\nEND\r\n");
        ask(&mut client, "stats\r\n", "END\r\n");
        // The durations of an iteration are counted at its end, after the replies.
        wait::until("the requests to be measured", || {
            let seen = metrics(admin);
            let measured = seen.sum("flick_request_duration_seconds_count");
            assert!(measured <= 5.0, "{engine}: {measured} durations of 5 requests");
            (measured == seen.sum("flick_requests_total") && measured == 5.0).then_some(())
        });
        service.drained();
    }
}
