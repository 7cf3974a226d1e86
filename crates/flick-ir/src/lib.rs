//! flick-ir
