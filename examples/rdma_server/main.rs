//! The smallest server of synchronous calls, as rdma-core's `rdma_server`: it serves one client, and ends.
//!
//! By default the client of `rdma_client` runs in this process too, on a second device model.

#[path = "../rdma_client/client.rs"]
mod client;
#[path = "../common/link.rs"]
mod link;
#[path = "../common/model.rs"]
mod model;
#[path = "../common/node.rs"]
mod node;
#[path = "../rdma_client/pair.rs"]
mod pair;
#[path = "../common/place.rs"]
mod place;
#[path = "../common/program.rs"]
mod program;
#[path = "../common/room.rs"]
mod room;
mod server;
#[path = "../common/unreached.rs"]
mod unreached;

use std::process::ExitCode;

fn main() -> ExitCode {
    pair::main()
}
