//! flick-load
