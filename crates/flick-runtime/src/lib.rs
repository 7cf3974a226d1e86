//! flick-runtime
