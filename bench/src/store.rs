//! The embedded store asked directly: what the load generator and the store reach without a proxy.

use std::io;

use flick_load::load::Protocol;
use flick_load::store::Store;

use crate::cli::LoadArgs;
use crate::measure;
use crate::process::{Boost, free_addr, pin_this_thread};
use crate::stats::Spread;

/// Runs the rounds and prints their median; there is no rival here, so nothing is written down.
pub(crate) fn run(args: &LoadArgs) -> io::Result<()> {
    let _boost = args.place.boost.then(Boost::new).transpose()?;
    // The store's thread inherits the core of this one.
    pin_this_thread(args.place.server_core)?;
    let store = Store::start(free_addr()?)?;
    pin_this_thread(args.place.load_core)?;
    let mut rates = Vec::new();
    for number in 1..=args.rounds.max(1) {
        let round = measure::round(args, store.addr(), Protocol::Binary, None)?;
        println!(
            "round {number} store {:>9.0}/s  p50 {} us  p99 {} us",
            round.replies_per_s, round.p50_us, round.p99_us
        );
        rates.push(round.replies_per_s);
    }
    let rate = Spread::of(rates.into_iter());
    println!("median {:.0}/s ({:.0} to {:.0})", rate.median, rate.min, rate.max);
    Ok(())
}
