//! The mover by the program itself, against directories and real servers. One program for all of these tests: each of its own would compile what they share once more.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../destinations/tests/support/http_door.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod http_door;
#[path = "../../../destinations/tests/support/radosgw.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod radosgw;
#[path = "../../../destinations/tests/support/stand_in.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod stand_in;
#[path = "../../../destinations/tests/common/xrootd.rs"]
mod xrootd;

mod defined;
mod delivery;
mod door;
mod lies;
mod lies_s3;
mod merge;
mod moves;
mod routes;
mod s3;
mod said;
mod seen;
mod store;
mod stream;
mod to_xrootd;
mod web;
mod zstd;
