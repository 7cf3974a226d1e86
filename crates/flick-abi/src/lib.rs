//! flick-abi
