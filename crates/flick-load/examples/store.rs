//! Runs the embedded store until its standard input ends: `cargo run -p flick-load --example store -- 127.0.0.1:11311`.

use std::io::Read;
use std::net::SocketAddr;

use flick_load::store::EmbeddedStore;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr: SocketAddr = std::env::args().nth(1).ok_or("usage: store ADDRESS:PORT")?.parse()?;
    let store = EmbeddedStore::start(addr)?;
    println!("{}", store.addr());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    store.stop();
    Ok(())
}
