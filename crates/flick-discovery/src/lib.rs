//! Service discovery: backend lists from a file, from the addresses of a DNS name, or from DNS SRV records.
//! Promises: sources are read on threads of this crate, never on a worker; a source that cannot be read, is malformed
//! or names more backends than fit leaves the list unchanged and is logged once; the same backends in another order are
//! the same list.
//! Not here: the syntax of options and of `flick.toml`, which is in the command line; search domains, `/etc/hosts`.

#![forbid(unsafe_code)]

pub mod address;
mod dns;
mod file;
mod limits;
mod reader;
mod resolv_conf;
mod source;
mod watcher;

pub use dns::Resolver;
pub use reader::{FirstList, LastLists, SourceReader};
pub use source::Source;
pub use watcher::{WatchedChannel, Watchers};
