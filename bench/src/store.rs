//! The embedded store without a proxy: the limit of the load generator and of the store.

use std::io;

use flick_load::load::LoadProtocol;
use flick_load::store::EmbeddedStore;

use crate::cli::LoadArgs;
use crate::measure;
use crate::process::{Boost, free_addr, pin_this_thread};
use crate::stats::Spread;

/// Runs the rounds and prints their median; there is no rival, so no results are written.
pub(crate) fn run(args: &LoadArgs) -> io::Result<()> {
    let _boost = args.cores.boost.then(Boost::new).transpose()?;
    // The store's thread inherits the core of this one.
    pin_this_thread(args.cores.server_core)?;
    let store = EmbeddedStore::start(free_addr()?)?;
    pin_this_thread(args.cores.load_core)?;
    let mut rates = Vec::new();
    for number in 1..=args.rounds.max(1) {
        let round = measure::round(args.config(store.addr(), LoadProtocol::Binary), None)?;
        println!(
            "round {number} store {:>9.0}/s  p50 {} us  p99 {} us",
            round.requests_per_s, round.p50_us, round.p99_us
        );
        rates.push(round.requests_per_s);
    }
    let rate = Spread::of(rates.into_iter());
    println!("median {:.0}/s ({:.0} to {:.0})", rate.median, rate.min, rate.max);
    Ok(())
}
