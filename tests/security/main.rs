//! Attacks: a hostile guest, platform, mirror, file or neighbour, and what it must not get.
//!
//! One module for each attacked surface; each test performs the attack and asserts that it failed.
