//! flick-lower
