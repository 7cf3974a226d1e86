//! Measures flick beside its rivals, in the same run on the same machine: `cargo run --release -p bench -- --help`.
//!
//! Promises: servers, load and backends have the same cores for all sides; a run with any error or wrong reply is void;
//! every process that is started is ended, by its own id.
//! Not here: the method, which is in `bench/METHOD.md`.

#![forbid(unsafe_code)]

mod accel;
mod bars;
mod chain;
mod cli;
mod compile_time;
mod counting;
mod dictionary;
mod drive;
mod following;
mod generators;
mod hadoop;
mod handover;
mod http_balancer;
mod idle_connections;
mod kernels;
mod key_value_server;
mod memcached_proxy;
mod neighbours;
mod parsing;
mod relay;
mod shares;
mod sharing;
mod shm;
mod shm_services;
mod static_server;
mod store;
mod store_protocols;
mod worst_message;

mod machine;
mod measure;
mod page;
mod process;
mod rivals;
mod stats;
mod sweep;
mod wrk;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let outcome = match cli::Cli::parse().command {
        cli::Command::MemcachedProxy(args) => memcached_proxy::run(&args),
        cli::Command::Parsing(args) => parsing::run(&args).map_err(std::io::Error::other),
        cli::Command::Kernels(args) => kernels::run(&args).map_err(std::io::Error::other),
        cli::Command::Hadoop(args) => hadoop::run(&args),
        cli::Command::HadoopMerge(args) => hadoop::merge(&args),
        cli::Command::Kaitai(args) => parsing::kaitai(&args).map_err(std::io::Error::other),
        cli::Command::Relay(args) => relay::run(&args),
        cli::Command::HttpBalancer(args) => http_balancer::run(&args),
        cli::Command::HttpBalancerShm(args) => shm_services::http_balancer(&args),
        cli::Command::MemcachedProxyShm(args) => shm_services::memcached_proxy(&args),
        cli::Command::IdleConnections(args) => idle_connections::run(&args),
        cli::Command::StaticServer(args) => static_server::run(&args),
        cli::Command::KeyValueServer(args) => key_value_server::run(&args),
        cli::Command::Neighbours(args) => neighbours::run(&args),
        cli::Command::Shares(args) => shares::run(&args),
        cli::Command::WorstMessage(args) => worst_message::run(&args),
        cli::Command::Counting(args) => counting::run(&args),
        cli::Command::Handover(args) => handover::run(&args),
        cli::Command::Shm(args) => shm::run(&args),
        cli::Command::Chain(args) => chain::run(&args),
        cli::Command::Accel(args) => accel::run(&args),
        cli::Command::PacketFilter(args) => chain::filter(&args),
        cli::Command::Sharing(args) => sharing::run(&args),
        cli::Command::BareRelay(args) => relay::bare(&args),
        cli::Command::Compile(args) => compile_time::run(&args),
        cli::Command::Store(args) => store::run(&args),
        cli::Command::StoreProtocols(args) => store_protocols::run(&args),
        cli::Command::Dictionary(args) => dictionary::run(&args),
        cli::Command::Load(args) => drive::run(&args),
        cli::Command::Generators(args) => generators::run(&args),
        cli::Command::Following(args) => following::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
