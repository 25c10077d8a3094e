//! The smallest client of synchronous calls, as rdma-core's `rdma_client`: sixteen bytes there, sixteen bytes back.
//!
//! By default the server of `rdma_server` runs in this process too, on a second device model.

mod client;
#[path = "../common/link.rs"]
mod link;
#[path = "../common/model.rs"]
mod model;
#[path = "../common/node.rs"]
mod node;
mod pair;
#[path = "../common/place.rs"]
mod place;
#[path = "../common/program.rs"]
mod program;
#[path = "../common/room.rs"]
mod room;
#[path = "../rdma_server/server.rs"]
mod server;
#[cfg(test)]
mod tests;
#[path = "../common/unreached.rs"]
mod unreached;

use std::process::ExitCode;

fn main() -> ExitCode {
    pair::main()
}
