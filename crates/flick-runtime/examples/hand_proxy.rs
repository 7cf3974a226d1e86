//! The platform with a hand-written engine, as a yardstick for generated code: same options as `flick run`.
use std::sync::Arc;
#[path = "../tests/common/mod.rs"]
mod common;
use flick_runtime::*;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let option = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).map(|text| text.split('=').next_back().unwrap_or_default().to_owned())
    };
    let endpoints = |name: &str| -> Vec<flick_net::Endpoint> {
        let text = option(name).expect("--listen client=ADDRESS --connect backends=ADDRESS,...");
        text.split(',').map(|text| text.parse().expect("an address")).collect()
    };
    let config = PlatformConfig {
        workers: 1,
        pin: false,
        io: option("--io").map_or_else(Default::default, |io| io.parse().expect("auto, epoll or uring")),
        upgrades_to_shm: false,
        shares_free_ports: false,
        listen: vec![Binding::new("client", endpoints("--listen"))],
        connect: vec![Binding::new("backends", endpoints("--connect"))],
        limits: Limits::default(),
        timeouts: Timeouts::default(),
        state_dir: None,
        access: None,
    };
    let platform = Platform::start(common::program(), Arc::new(common::Hand), config).expect("starts");
    println!("{:?}", platform.addresses());
    loop {
        std::thread::sleep(std::time::Duration::from_secs(60));
        println!("{:?}", platform.snapshot());
    }
}
