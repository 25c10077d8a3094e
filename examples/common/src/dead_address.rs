//! For the programs' tests: an address at which there is no host.

use bareverbs_node::{Cm, Host, Options, Pair};

use crate::Result;

/// The error of a client at the first address with a server at the second one, where there is no host.
///
/// # Panics
///
/// If the client finds one.
pub fn message<T>(client: impl FnOnce(&mut Cm<'_, '_>, [Host; 2]) -> Result<T>) -> String {
    let ends = [2, 99].map(|last| Host::from([10, 0, 0, last]));
    let pair = Pair::open("model", [10, 0, 0, 1], ends[0]).expect("two models");
    let mut node = pair.client;
    *node.options_mut() = Options::for_connections(4);
    let message: Result<String> = node.run(|cm| {
        let error = client(cm, ends).err();
        Ok(error.expect("an error").to_string())
    });
    message.expect("the device is well")
}
