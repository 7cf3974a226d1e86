//! Tests of lowering, through both engines: what parsers load, where they stop, what rules send.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot go on fails"))]

#[path = "suite/accepted.rs"]
mod accepted;
#[path = "suite/asks.rs"]
mod asks;
#[path = "suite/capacity_checks.rs"]
mod capacity_checks;
#[path = "suite/corners.rs"]
mod corners;
#[path = "suite/counts.rs"]
mod counts;
#[path = "suite/engines.rs"]
mod engines;
#[path = "suite/examples.rs"]
mod examples;
#[path = "suite/first.rs"]
mod first;
#[path = "suite/full.rs"]
mod full;
#[path = "suite/golden.rs"]
mod golden;
#[path = "suite/grammars.rs"]
mod grammars;
#[path = "suite/hand.rs"]
mod hand;
#[path = "suite/kept.rs"]
mod kept;
#[path = "suite/language.rs"]
mod language;
#[path = "suite/listing_1.rs"]
mod listing_1;
#[path = "suite/lookups.rs"]
mod lookups;
#[path = "suite/memcached.rs"]
mod memcached;
#[path = "suite/merges.rs"]
mod merges;
#[path = "suite/model.rs"]
mod model;
#[path = "suite/platform.rs"]
mod platform;
#[path = "suite/random.rs"]
mod random;
#[path = "suite/rules.rs"]
mod rules;
#[path = "suite/runs.rs"]
mod runs;
#[path = "suite/session.rs"]
mod session;
#[path = "suite/source.rs"]
mod source;
#[path = "suite/structured.rs"]
mod structured;
#[path = "suite/updates.rs"]
mod updates;
#[path = "suite/values.rs"]
mod values;
#[path = "suite/work.rs"]
mod work;
#[path = "suite/written.rs"]
mod written;
