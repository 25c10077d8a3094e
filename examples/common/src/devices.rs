//! The devices that a program is to use: cards, or models.

use bareverbs_command_line::{List, listed};
use bareverbs_node::vfio::{self, PciAddress, VfioDevice};
use bareverbs_node::{
    DEVICE_VARIABLE, DeviceName, DevicePlatform, Error, Node, NodeAddress, Options, Pair,
};
use bpaf::{Bpaf, Parser, long};

use crate::plugged::{Model, model};

/// The devices, and what a model is.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(guard(Devices::is_possible, ONLY_MODELS))]
pub struct Devices {
    /// The card: "model", or "vfio:BDF" for the function at this PCI address; two of them with a comma between, if both
    /// ends are to run here.
    #[bpaf(
        long("device"),
        env(DEVICE_VARIABLE),
        argument::<List<DeviceName>>("DEVICE"),
        last,
        map(List::parts),
        fallback(vec![DeviceName::Model]),
        format_fallback(listed)
    )]
    pub names: Vec<DeviceName>,
    #[bpaf(external)]
    pub model: Model,
}

/// A program says this about options of the model that are given with a card.
pub const ONLY_MODELS: &str =
    "--card, --model-port and --fault are for the model, and --device names a card";

impl Devices {
    /// Returns true for the device model.
    pub fn is_model(&self) -> bool {
        self.names == [DeviceName::Model]
    }

    fn is_possible(&self) -> bool {
        self.is_model() || !self.model.is_given()
    }

    /// A node with this address, on the only device.
    pub fn node(&self, address: impl Into<NodeAddress>) -> Result<Node, Error> {
        let options = Options::default();
        match self.names[..] {
            [DeviceName::Model] => {
                let [platform, _] = self.model.pair(options.interrupts);
                Ok(Node::new(platform, address, options))
            }
            [device] => Node::open_with(device, address, options),
            ref devices => Err(Error::NotOneDevice(devices.len())),
        }
    }

    /// Two functions without interrupts: two models with a cable between their ports, or two cards, in the order in which they
    /// are named. For programs without a connection manager.
    pub fn platforms(&self) -> Result<[DevicePlatform; 2], Error> {
        match self.names[..] {
            [DeviceName::Model] => Ok(self.model.pair(false)),
            [DeviceName::Vfio(first), DeviceName::Vfio(second)] => {
                Ok([open(first, 0)?.into(), open(second, 0)?.into()])
            }
            ref devices => Err(Error::NotTwoDevices(devices.len())),
        }
    }

    /// The nodes of a server and of a client with these addresses: on two models, or on two cards, the server's named first.
    pub fn pair(&self, ends: [impl Into<NodeAddress>; 2], options: Options) -> Result<Pair, Error> {
        let ends = ends.map(Into::into);
        if !self.is_model() {
            return Pair::open_with(&self.names, ends, options);
        }
        let [theirs, ours] = self.model.pair(options.interrupts);
        let [there, here] = ends;
        Ok(Pair {
            server: Node::new(theirs, there, options),
            client: Node::new(ours, here, options),
        })
    }
}

/// The function at an address, with so many interrupt vectors.
pub fn open(address: PciAddress, vectors: u16) -> Result<VfioDevice, Error> {
    VfioDevice::open_with(address, vfio::Options::with_vectors(vectors))
        .map_err(|source| Error::Function { address, source })
}

/// A function, for programs that a model does not help.
pub fn function() -> impl Parser<PciAddress> {
    long("device")
        .env(DEVICE_VARIABLE)
        .help("The card: vfio:BDF, the function at this PCI address.")
        .argument::<DeviceName>("DEVICE")
        .last()
        .parse(|device| match device {
            DeviceName::Vfio(address) => Ok(address),
            DeviceName::Model => Err("a model alone has no subnet"),
        })
}
