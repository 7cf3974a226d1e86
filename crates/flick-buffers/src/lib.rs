//! flick-buffers
