//! The threads: they have sockets and clocks, and decide nothing.

pub(crate) mod acceptor;
pub(crate) mod control;
pub(crate) mod inbox;
pub(crate) mod lane;
pub(crate) mod local;
pub(crate) mod look;
pub(crate) mod smart;
pub(crate) mod socket;
