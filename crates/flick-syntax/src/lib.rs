//! flick-syntax
