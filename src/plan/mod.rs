//! From a configuration, and later the address table, to the machines of each pass. Pure.

pub mod addresses;
pub mod changes;
pub mod egress;
pub mod harvest;
pub mod machines;
