//! Datagrams to a multicast group, as rdma-core's `mckey` has them: every member of the group receives what any host
//! sends there. With the built-in model (the default) both ends run here.
//!
//! ```text
//! mckey -c 3 -m ff15::7:1
//! mckey --device vfio:0000:3b:00.0 -b 192.0.2.1 -m 239.192.7.1
//! mckey --device vfio:0000:3b:00.1 -b 192.0.2.2 -m 239.192.7.1 -s
//! ```

mod members;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;

use bareverbs::cm::rdma::PortSpace;
use bareverbs_examples::Result;
use bareverbs_examples::datagrams;
use bareverbs_examples::exchange::{Amount, Exchange, Exchanged, amount};
use bareverbs_examples::program::{self, Cards, Roles, cards};
use bareverbs_node::{Cm, Host};
use bpaf::Bpaf;
use members::{Group, Members};

/// The group if none is named, from the local scope without assigned groups (RFC 2365).
const SOME_GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 7, 1);
/// The receiver's address for groups of IPv6, if both ends run here.
const SOME_ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// Datagrams to a multicast group.
///
/// A sender and a receiver run in this process, on two ConnectX models that are cabled together or on two cards, the
/// receiver's named first, and each queue pair of the receiver has to receive all messages of those of the sender. On
/// one card, or with --link, one end runs: the sender with -s. A receiver's queue pairs then wait for -C messages each,
/// from any sender.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(
    options,
    guard(|it| it.group.is_none() || it.unmapped.is_none(), "-m and -M cannot be used together")
)]
struct Options {
    /// The multicast group, 239.192.7.1 if not given.
    #[bpaf(short('m'), argument("ADDRESS"), last, optional)]
    group: Option<IpAddr>,
    /// The multicast group by its GID, which is joined without resolving an address, in place of -m.
    #[bpaf(short('M'), argument("GID"), last, optional)]
    unmapped: Option<Ipv6Addr>,
    /// Act as the sender.
    #[bpaf(short('s'), switch, last)]
    sender: bool,
    /// This end's address; the receiver's, if both ends are here. On an InfiniBand port it may be gid:GID, and gid alone for
    /// whichever the port has; the group is not resolved then.
    #[bpaf(short('b'), argument("ADDRESS"), last, optional)]
    bind: Option<Host>,
    #[bpaf(external)]
    amount: Amount,
    /// Port space: udp (0x0111), which is the default, or ipoib (0x0002).
    #[bpaf(
        short('p'),
        argument::<String>("SPACE"), last,
        parse(datagrams::parse_port_space),
        fallback(PortSpace::Udp)
    )]
    port_space: PortSpace,
    /// The sender joins as a send-only full member, which is not reported to switches.
    #[bpaf(short('o'), switch, last)]
    send_only: bool,
    #[bpaf(external)]
    cards: Cards,
}

fn main() -> ExitCode {
    program::main("mckey", &options(), Options::run)
}

impl Options {
    fn run(&self) -> Result<Option<Exchanged>> {
        self.cards.run(self, self.roles()?)
    }

    fn roles(&self) -> Result<Roles> {
        let group = self.address();
        if !group.is_multicast() {
            return Err(format!("{group} is no multicast address").into());
        }
        let here = || self.bind.ok_or("-b: which address shall this end have?");
        Ok(match (self.cards.one(), self.sender) {
            (false, true) => return Err("both ends run here: leave -s away".into()),
            (false, false) => Roles::Both {
                client: None,
                server: self.bind.or(group.is_ipv6().then_some(SOME_ADDRESS.into())),
            },
            (true, false) => Roles::Server(here()?),
            (true, true) => Roles::Client {
                here: here()?,
                server: group.into(),
            },
        })
    }

    fn address(&self) -> IpAddr {
        match self.unmapped {
            Some(gid) => gid.to_canonical(),
            None => self.group.unwrap_or(IpAddr::V4(SOME_GROUP)),
        }
    }

    fn group(&self, send_only: bool) -> Group {
        Group {
            address: self.address(),
            resolved: self.unmapped.is_none(),
            port_space: self.port_space,
            send_only,
        }
    }
}

impl Exchange for Options {
    fn name(&self) -> &'static str {
        "mckey"
    }

    fn amount(&self) -> Amount {
        self.amount
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        let both = !self.cards.one();
        let senders = if both { self.amount.connections() } else { 1 };
        let mut members = Members::receivers(cm, self.group(false), self.amount, senders)?;
        members.join(address)?;
        listening();
        members.receive(both)?;
        members.leave()
    }

    fn work(&self, cm: &mut Cm<'_, '_>, [here, _]: [Host; 2], both: bool) -> Result<Exchanged> {
        let mut members = Members::senders(cm, self.group(self.send_only), self.amount)?;
        members.join(here)?;
        if !both {
            members.settle()?;
        }
        members.send()?;
        members.leave()
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} to {}", self.address());
    }

    /// Each of the receiver's queue pairs received the messages of all of the sender's.
    fn agree(&self, served: &Exchanged, found: &Exchanged) -> bool {
        served.connections == found.connections
            && served.received == found.sent * served.connections as u64
    }
}
