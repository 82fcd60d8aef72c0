//! From a configuration, and later the table of addresses, to the machines of each pass. Pure.

pub mod addresses;
pub mod egress;
pub mod harvest;
pub mod machines;
