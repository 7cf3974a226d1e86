//! flick-codegen
