//! The platform with a hand-written engine, as a yardstick for generated code: `hand_proxy LISTEN BACKEND...`.
use std::sync::Arc;
#[path = "../tests/common/mod.rs"]
mod common;
use flick_runtime::*;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let parse = |text: &String| text.parse().expect("an address");
    let config = PlatformConfig {
        workers: 1,
        pin: false,
        io: Default::default(),
        listen: vec![Binding { channel: "client".into(), endpoints: vec![parse(&args[0])] }],
        connect: vec![Binding { channel: "backends".into(), endpoints: args[1..].iter().map(parse).collect() }],
        limits: Limits::default(),
        timeouts: Timeouts::default(),
    };
    let platform = Platform::start(common::program(), Arc::new(common::Hand), config).expect("starts");
    println!("{:?}", platform.addresses());
    loop {
        std::thread::sleep(std::time::Duration::from_secs(2));
        println!("{:?}", platform.metrics());
    }
}
