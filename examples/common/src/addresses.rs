//! The choice of a program's end of a connection, or of both, in the letters of rdma-core's `ucmatose` and its like.

use bpaf::Bpaf;

use bareverbs_node::Host;

use crate::Result;
use crate::program::{Cards, Program, Roles, cards};

/// Where the ends are. With one card, or with a link, one end runs here: the client, if the server's address is given.
#[derive(Bpaf, Debug, Clone)]
pub struct Addresses {
    /// The server's address: here is a client, unless both ends are here.
    #[bpaf(short('s'), argument("ADDRESS"), last, optional)]
    pub server: Option<Host>,
    /// This end's address. On an InfiniBand port it may be gid:GID, and gid alone for whichever the port has; the server's may
    /// be one as well.
    #[bpaf(short('b'), argument("ADDRESS"), last, optional)]
    pub bind: Option<Host>,
    #[bpaf(external)]
    pub cards: Cards,
}

impl Addresses {
    /// Runs a program's end, or both. What the client found out, if it ran here.
    pub fn run<A: Program>(&self, program: &A) -> Result<Option<A::Found>> {
        self.cards.run(program, self.roles()?)
    }

    /// `true` if a server alone runs here.
    pub fn is_server(&self) -> bool {
        self.cards.one() && self.server.is_none()
    }

    fn roles(&self) -> Result<Roles> {
        let here = || self.bind.ok_or("-b: which address shall this end have?");
        Ok(match (self.cards.one(), self.server) {
            (false, server) => Roles::Both {
                client: self.bind,
                server,
            },
            (true, None) => Roles::Server(here()?),
            (true, Some(server)) => Roles::Client {
                here: here()?,
                server,
            },
        })
    }
}
