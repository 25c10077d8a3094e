//! The choice of a program's end of a connection, or of both, in the letters of rdma-core's `rping`.

use bpaf::Bpaf;

use bareverbs_node::Host;

use crate::Result;
use crate::program::{Cards, Program, Roles, cards_with_letter};

/// The addresses of this end and of its peer.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(guard(|ends| !(ends.server && ends.client), "-s and -c cannot be used together"))]
pub struct Ends {
    /// Act as the server.
    #[bpaf(short('s'), switch, last)]
    pub server: bool,
    /// Act as the client.
    #[bpaf(short('c'), switch, last)]
    pub client: bool,
    /// Address: of the server to connect to, or to listen on. On an InfiniBand port it may be gid:GID, and gid alone for this
    /// end's.
    #[bpaf(short('a'), argument("ADDRESS"), last, optional)]
    pub address: Option<Host>,
    /// This end's address, for a client on a card or a link; a server has the one that it listens on.
    #[bpaf(short('I'), argument("ADDRESS"), last, optional)]
    pub source: Option<Host>,
    #[bpaf(external(cards_with_letter))]
    pub cards: Cards,
}

impl Ends {
    /// Runs a program's end, or both. What the client found out, if it ran here.
    pub fn run<A: Program>(&self, program: &A) -> Result<Option<A::Found>> {
        self.cards.run(program, self.roles()?)
    }

    fn roles(&self) -> Result<Roles> {
        let Self {
            address, source, ..
        } = *self;
        if self.server {
            return Ok(Roles::Server(
                address.ok_or("-a: which address shall the server have?")?,
            ));
        }
        if self.client {
            return Ok(Roles::Client {
                here: source.ok_or("-I: which address shall the client have?")?,
                server: address.ok_or("-a: where is the server?")?,
            });
        }
        if self.cards.one() {
            return Err(
                "one end runs here: say which, with -s or -c; or name two cards with --device vfio:BDF,vfio:BDF".into(),
            );
        }
        Ok(Roles::Both {
            client: source,
            server: address,
        })
    }
}
