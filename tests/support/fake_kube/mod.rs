//! An API server of a cluster that is being installed: strict, stateful, and hostile where it is told to be.
//!
//! It has the kinds that are asked for and fails the test when it is asked for another.
#![allow(dead_code, reason = "each test takes what it needs")]

pub mod authority;
pub mod requests;
pub mod server;
pub mod world;
