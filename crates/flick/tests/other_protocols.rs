//! Protocols that the library does not have, each a page of grammar beside its service: MQTT between mosquitto and its
//! clients. (The scenarios of all examples are played in `test_command.rs`.)

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::peers::{free_address, output, signal, spawn};
use common::service::Service;
use common::{Scratch, wait};

/// The Debian packages.
const BROKER: &str = "mosquitto";
const CLIENTS: &str = "mosquitto-clients";
/// Messages of each client.
const MESSAGES: usize = 50;

struct Broker {
    child: Child,
    address: std::net::SocketAddr,
    _config: Scratch,
}

impl Broker {
    fn start() -> Self {
        let address = free_address();
        let config = Scratch::new("mosquitto");
        let text =
            format!("listener {} 127.0.0.1\nallow_anonymous true\npersistence false\n", address.port());
        let path = config.write("mosquitto.conf", &text);
        let mut command = Command::new("/usr/sbin/mosquitto");
        command.arg("-c").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn(&mut command, BROKER);
        wait::until("mosquitto to listen", || TcpStream::connect(address).ok());
        Self { child, address, _config: config }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        signal(self.child.id(), "TERM");
        let _ = self.child.wait();
    }
}

#[test]
fn mosquitto_clients_publish_and_subscribe() {
    let broker = Broker::start();
    let service = Service::start(&[
        "run",
        "examples/mqtt_gateway/mqtt_gateway.flick",
        "--listen",
        "client=127.0.0.1:0",
        "--connect",
        &format!("brokers={}", broker.address),
    ]);
    let port = service.address.port().to_string();
    for quality in ["0", "1", "2"] {
        // Into a pipe it would keep its lines to itself; it gives up by itself.
        let mut subscriber = Command::new("stdbuf");
        subscriber.args([
            "-oL",
            "mosquitto_sub",
            "-W",
            "60",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-V",
            "mqttv311",
            "-q",
            quality,
            "-t",
            "news/#",
            "-v",
        ]);
        subscriber.args(["-C", &MESSAGES.to_string(), "-d"]).stdout(Stdio::piped());
        let mut subscriber = subscriber.spawn().expect("mosquitto_sub runs: install mosquitto-clients");
        let mut lines =
            BufReader::new(subscriber.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.starts_with("Subscribed")), "the broker answers the subscription");
        let mut publisher = Command::new("mosquitto_pub");
        publisher.args(["-h", "127.0.0.1", "-p", &port, "-V", "mqttv311", "-q", quality, "-t", "news/today"]);
        publisher.args(["-m", "hello", "--repeat", &MESSAGES.to_string(), "--repeat-delay", "0"]);
        let (status, _, stderr) = common::captured(output(&mut publisher, CLIENTS));
        assert_eq!(status, 0, "mosquitto_pub: {stderr}");
        let received = lines.filter(|line| line == "news/today hello").count();
        assert_eq!(received, MESSAGES, "quality {quality}: every message arrives once");
        assert!(subscriber.wait().expect("it ends").success());
    }
    // Topics of the brokers' own are not passed on: the publisher waits for an answer that does not come.
    let mut publisher = Command::new("mosquitto_pub");
    publisher.args(["-h", "127.0.0.1", "-p", &port, "-q", "0", "-t", "$SYS/news", "-m", "hello"]);
    let (status, _, stderr) = common::captured(output(&mut publisher, CLIENTS));
    assert_eq!(status, 0, "mosquitto_pub: {stderr}");
    let log = service.drained();
    assert!(log.contains("refused"), "the service counts what it refuses: {log}");
}
