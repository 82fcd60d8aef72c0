//! An API server with KubeVirt, CDI and Multus for one or more tenants: strict, stateful, without a garbage collector.
//!
//! `world` keeps objects and knows verbs, `schema` and `admission` refuse, `rights` forbid, `controllers` move things, `snapshots` save disks,
//! `consoles` are guests at their serial lines, `wire` is TLS and HTTP. `beside` has all of this act on a real API server. An unknown request fails the test.
#![allow(dead_code, unused_imports, reason = "each test takes what it needs")]

pub mod admission;
pub mod beside;
pub mod consoles;
pub mod controllers;
pub mod discovery;
pub mod requests;
pub mod resources;
pub mod rights;
pub mod schema;
pub mod snapshots;
pub mod wire;
pub mod world;

pub use wire::FakeKubevirt;
pub use world::World;
