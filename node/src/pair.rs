//! Two nodes in one process, joined.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bareverbs_core::Mtu;

use crate::address::NodeAddress;
use crate::device_name::DeviceName;
use crate::error::Error;
use crate::node::{Cm, Node, Options, open_function};
use crate::platform::DevicePlatform;

/// A server's node and a client's, in one process: on two device models with a cable between their ports, or on two cards.
#[derive(Debug)]
pub struct Pair {
    /// The server's node.
    pub server: Node,
    /// The client's node.
    pub client: Node,
}

impl Pair {
    /// Opens `"model"`, which is two of them, or two cards: `"vfio:0000:3b:00.0,vfio:0000:3b:00.1"`, the server's first.
    ///
    /// # Errors
    ///
    /// [`Error::Name`], [`Error::NotTwoDevices`], [`Error::SameAddress`], [`Error::NoModel`], or [`Error::Function`] with
    /// what VFIO says.
    pub fn open(
        devices: &str,
        server: impl Into<NodeAddress>,
        client: impl Into<NodeAddress>,
    ) -> Result<Self, Error> {
        let ends = [server.into(), client.into()];
        Self::open_with(&DeviceName::list(devices)?, ends, Options::default())
    }

    /// Opens the devices that the environment names ([`DeviceName::from_env`], [`Options::from_env`]), the model if it names
    /// none.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`Error::PortKind`].
    pub fn from_env(
        server: impl Into<NodeAddress>,
        client: impl Into<NodeAddress>,
    ) -> Result<Self, Error> {
        let ends = [server.into(), client.into()];
        Self::open_with(&DeviceName::from_env()?, ends, Options::from_env()?)
    }

    /// Opens devices for the server and the client with these addresses.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), without [`Error::Name`].
    pub fn open_with(
        devices: &[DeviceName],
        [server, client]: [NodeAddress; 2],
        mut options: Options,
    ) -> Result<Self, Error> {
        if server.host() == client.host() && !server.host().is_own_gid() {
            return Err(Error::SameAddress(server.host()));
        }
        let [theirs, ours] = match *devices {
            [DeviceName::Model] => models(options)?,
            [DeviceName::Vfio(theirs), DeviceName::Vfio(ours)] => [
                open_function(theirs, options.interrupts, Duration::ZERO)?,
                open_function(ours, options.interrupts, Duration::ZERO)?,
            ],
            ref devices => return Err(Error::NotTwoDevices(devices.len())),
        };
        options.max_path_mtu.get_or_insert(Mtu::B4096);
        #[cfg_attr(not(feature = "model"), expect(unused_mut))]
        let mut pair = Self {
            server: Node::new(theirs, server, options),
            client: Node::new(ours, client, options),
        };
        #[cfg(feature = "model")]
        for node in [&mut pair.server, &mut pair.client] {
            node.is_model = matches!(devices, [DeviceName::Model]);
        }
        Ok(pair)
    }

    /// For as many connections on both nodes ([`Options::connections`]).
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.server.options_mut().connections = connections;
        self.client.options_mut().connections = connections;
        self
    }

    /// Runs `serve` on the server's node, in a thread, and `work` on the client's once `serve` has called the function that
    /// it is given: when a client may connect. Returns what both returned.
    ///
    /// If the client fails, its error is returned at once, unless the server has failed before; the server's thread then
    /// ends when its connections are gone, or with the process.
    ///
    /// # Errors
    ///
    /// What `serve` or `work` returned, or an [`Error`] of one of the nodes.
    pub fn run<S, C, E>(
        self,
        serve: impl FnOnce(&mut Cm<'_, '_>, &mut dyn FnMut()) -> Result<S, E> + Send + 'static,
        work: impl FnOnce(&mut Cm<'_, '_>) -> Result<C, E>,
    ) -> Result<(S, C), E>
    where
        S: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let Self { server, client } = self;
        let (ready, may_connect) = mpsc::channel();
        let failed = Arc::new(AtomicBool::new(false));
        let server = std::thread::spawn({
            let failed = failed.clone();
            move || {
                let served = server.run(|cm| {
                    let served = serve(cm, &mut || {
                        // The client's node is gone only if it has failed, which it says itself.
                        let _ = ready.send(());
                    });
                    // Before the clients of a failed server are notified that it is gone.
                    failed.store(served.is_err(), Ordering::Release);
                    served
                });
                failed.fetch_or(served.is_err(), Ordering::Release);
                served
            }
        });
        let join = |server: std::thread::JoinHandle<Result<S, E>>| {
            let served = server.join();
            served.unwrap_or_else(|_| Err(Error::ServerPanicked.into()))
        };
        let found = client.run(|cm| match may_connect.recv() {
            Ok(()) => work(cm).map(Some),
            // The server has ended without a client, and its result says why.
            Err(_) => Ok(None),
        });
        match found {
            Ok(Some(found)) => Ok((join(server)?, found)),
            Ok(None) => Err(join(server).err().unwrap_or(Error::ServerNotReady.into())),
            // What the client found may be no more than that the server is gone.
            Err(error) if failed.load(Ordering::Acquire) => {
                Err(join(server).err().unwrap_or(error))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(feature = "model")]
fn models(options: Options) -> Result<[DevicePlatform; 2], Error> {
    crate::models::models(options, [1, 2])
}

#[cfg(not(feature = "model"))]
fn models(_: Options) -> Result<[DevicePlatform; 2], Error> {
    Err(Error::NoModel)
}
