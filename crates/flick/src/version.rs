//! The version of flick: of the release, with the commit and the target it was built for. See `build.rs`.

/// Version of the release.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Commit that a release of flick was built from; empty if it is not known.
pub const COMMIT: &str = env!("FLICK_COMMIT");
/// Target that flick was built for.
pub const TARGET: &str = env!("FLICK_TARGET");
/// Output of `flick --version`, behind the name.
pub const LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FLICK_BUILD"), ")");
