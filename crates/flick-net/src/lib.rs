//! flick-net
