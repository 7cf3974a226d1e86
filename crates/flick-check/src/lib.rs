//! flick-check
