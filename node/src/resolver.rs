//! The resolver of a port, whatever its link layer.

use bareverbs_cm::ip::Host;
use bareverbs_cm::rdma::{
    IpOverInfiniband, NeighbourDiscovery, Neighbours, Resolver, Subnet, SubnetAdministration,
};
use bareverbs_core::Platform;

/// A resolver that is chosen by the port's link layer, so that the manager of each port has the same type.
#[derive(Debug)]
pub enum PortResolver<'s, 'd, P: Platform> {
    /// Ethernet: ARP and neighbour discovery.
    Ethernet(Box<NeighbourDiscovery<'s, 'd, P>>),
    /// InfiniBand with IP addresses.
    IpOverInfiniband(Box<IpOverInfiniband<'s, 'd, P>>),
    /// InfiniBand with GIDs only.
    Gids(Box<SubnetAdministration<'s>>),
}

impl<'s, 'd, P: Platform> PortResolver<'s, 'd, P> {
    /// The IP host, where there is one.
    pub const fn host(&mut self) -> Option<&mut Host<'s>> {
        match self {
            Self::Ethernet(neighbours) => Some(neighbours.host()),
            Self::IpOverInfiniband(interface) => Some(interface.host()),
            Self::Gids(_) => None,
        }
    }

    /// The resolver of an Ethernet port, if it is one.
    pub const fn ethernet(&mut self) -> Option<&mut NeighbourDiscovery<'s, 'd, P>> {
        match self {
            Self::Ethernet(neighbours) => Some(neighbours),
            Self::IpOverInfiniband(_) | Self::Gids(_) => None,
        }
    }
}

impl<'s, 'd, P: Platform> From<NeighbourDiscovery<'s, 'd, P>> for PortResolver<'s, 'd, P> {
    fn from(resolver: NeighbourDiscovery<'s, 'd, P>) -> Self {
        Self::Ethernet(Box::new(resolver))
    }
}

impl<'s, 'd, P: Platform> From<IpOverInfiniband<'s, 'd, P>> for PortResolver<'s, 'd, P> {
    fn from(resolver: IpOverInfiniband<'s, 'd, P>) -> Self {
        Self::IpOverInfiniband(Box::new(resolver))
    }
}

impl<'s, P: Platform> From<SubnetAdministration<'s>> for PortResolver<'s, '_, P> {
    fn from(resolver: SubnetAdministration<'s>) -> Self {
        Self::Gids(Box::new(resolver))
    }
}

/// Gives one half of the variant's resolver.
macro_rules! half {
    ($self:ident) => {
        match $self {
            Self::Ethernet(resolver) => &**resolver,
            Self::IpOverInfiniband(resolver) => &**resolver,
            Self::Gids(resolver) => &**resolver,
        }
    };
    (mut $self:ident) => {
        match $self {
            Self::Ethernet(resolver) => &mut **resolver,
            Self::IpOverInfiniband(resolver) => &mut **resolver,
            Self::Gids(resolver) => &mut **resolver,
        }
    };
}

impl<'s, 'd: 's, P: Platform> Resolver for PortResolver<'s, 'd, P> {
    type Neighbours = dyn Neighbours + 's;
    type Subnet = dyn Subnet + 's;

    fn neighbours(&self) -> &Self::Neighbours {
        half!(self)
    }

    fn neighbours_mut(&mut self) -> &mut Self::Neighbours {
        half!(mut self)
    }

    fn subnet(&self) -> &Self::Subnet {
        half!(self)
    }

    fn subnet_mut(&mut self) -> &mut Self::Subnet {
        half!(mut self)
    }
}
