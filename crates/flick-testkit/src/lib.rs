//! flick-testkit
