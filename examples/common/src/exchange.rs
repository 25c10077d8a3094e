//! The common part of programs whose ends send each other messages over many queue pairs: the options, the messages of one
//! queue pair, and what both ends count.

use std::time::Duration;

use bareverbs::cm::rdma::{ChannelId, CmEvent, CmId, QpInit, RdmaError};
use bareverbs::verbs::mr::{Buffer, Sge};
use bareverbs::verbs::qp::QpCap;
use bareverbs::verbs::{Platform, Wc};
use bareverbs_command_line::within;
use bpaf::Bpaf;

use crate::Result;
use crate::program::Program;
use bareverbs_node::{About, Cm, Host};

/// The longest time in which the other end does nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest time that an address or a route takes to be found.
pub const RESOLVE: Duration = Duration::from_secs(2);

/// How much is sent.
#[derive(Bpaf, Debug, Clone, Copy)]
pub struct Amount {
    /// Queue pairs of each end.
    #[bpaf(
        short('c'),
        argument("COUNT"), last,
        guard(within(1..=10_000), "not 1 to 10000"),
        fallback(1),
        display_fallback
    )]
    connections: u16,
    /// Messages of each queue pair, each way if they go both ways; all posted at once.
    #[bpaf(
        short('C'),
        argument("COUNT"), last,
        guard(within(..=8192), "more than 8192"),
        fallback(10),
        display_fallback
    )]
    messages: u32,
    /// Bytes of a message. One packet has to hold a datagram.
    #[bpaf(
        short('S'),
        argument("BYTES"), last,
        guard(within(..=16 << 20), "more than 16777216"),
        fallback(100),
        display_fallback
    )]
    size: u32,
}

impl Amount {
    pub fn connections(self) -> usize {
        self.connections.into()
    }

    /// None, if there is nothing in them.
    pub fn messages(self) -> u32 {
        if self.size == 0 { 0 } else { self.messages }
    }

    pub fn size(self) -> usize {
        self.size as usize
    }
}

/// The work that was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Exchanged {
    pub connections: usize,
    /// Messages, of all of them.
    pub sent: u64,
    pub received: u64,
}

/// The two ends of such a program.
pub trait Exchange: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    fn amount(&self) -> Amount;

    /// Does the work of [`Program::serve`].
    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged>;

    /// Does the work of [`Program::work`].
    fn work(&self, cm: &mut Cm<'_, '_>, ends: [Host; 2], both: bool) -> Result<Exchanged>;

    /// Says that the server waits for clients.
    fn announce(&self, address: Host);

    /// `true` if the client found the counts that go with the server's.
    fn agree(&self, served: &Exchanged, found: &Exchanged) -> bool {
        served == found
    }

    fn print_result(&self, end: &str, exchanged: Exchanged) -> Exchanged {
        let Exchanged {
            connections,
            sent,
            received,
        } = exchanged;
        let size = self.amount().size;
        println!(
            "{end}: {connections} queue pairs, {sent} messages of {size} bytes sent and {received} received"
        );
        exchanged
    }
}

impl<E: Exchange> Program for E {
    type Served = Exchanged;
    type Found = Exchanged;

    const CLIENT: usize = 1;

    fn name(&self) -> &'static str {
        Exchange::name(self)
    }

    fn connections(&self) -> usize {
        self.amount().connections()
    }

    fn serve(
        &self,
        cm: &mut Cm<'_, '_>,
        address: Host,
        listening: &mut dyn FnMut(),
    ) -> Result<Exchanged> {
        Exchange::serve(self, cm, address, listening).map(|done| self.print_result("server", done))
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        _: &About,
        ends: [Host; 2],
        both: bool,
    ) -> Result<Exchanged> {
        Exchange::work(self, cm, ends, both).map(|done| self.print_result("client", done))
    }

    fn announce(&self, address: Host) {
        Exchange::announce(self, address);
    }

    fn compare(&self, served: &Exchanged, found: &Exchanged) -> Result<()> {
        if self.agree(served, found) {
            return Ok(());
        }
        Err(format!("the server counts {served:?}, the client {found:?}").into())
    }
}

/// Waits for an event that has to come.
pub fn next_event<P: Platform>(cm: &mut Cm<'_, '_, P>, channel: ChannelId) -> Result<CmEvent> {
    let deadline = cm.now() + SILENCE;
    Ok(cm.get_cm_event_until(channel, deadline)?)
}

/// The message that a queue pair sends, if it does not return a received one.
pub fn text(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at + 7 * number + 1) as u8).collect()
}

/// Numbers and sizes of a queue pair's messages.
#[derive(Debug, Clone, Copy)]
pub struct MessageSizes {
    /// Bytes of a message.
    pub size: usize,
    /// Bytes that come in front of one.
    pub header: usize,
    pub sends: u32,
    pub receives: u32,
    /// Received messages are written to so many places, in turn.
    pub places: usize,
}

impl MessageSizes {
    fn place(&self) -> usize {
        self.header + self.size
    }

    /// Behind what is received lies what is sent.
    fn end(&self) -> usize {
        self.places * self.place()
    }
}

/// The messages of a queue pair.
pub struct Messages<'d, P: Platform> {
    id: CmId,
    sizes: MessageSizes,
    /// If there are any.
    memory: Option<Buffer<'d, P>>,
}

impl<'d, P: Platform> Messages<'d, P> {
    /// Creates the queue pair of an id, and the memory for all its messages.
    pub fn new(cm: &mut Cm<'_, 'd, P>, id: CmId, sizes: MessageSizes) -> Result<Self> {
        let mut init = QpInit {
            cap: QpCap {
                max_send_wr: sizes.sends.max(1),
                max_recv_wr: sizes.receives.max(1),
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: true,
            ..QpInit::default()
        };
        cm.create_qp(id, None, &mut init)?;
        let mut memory = None;
        if sizes.sends + sizes.receives > 0 {
            memory = Some(cm.reg_msgs(id, sizes.end() + sizes.size)?);
        }
        if let Some(memory) = &memory {
            for number in 0..sizes.receives as usize {
                let place = number % sizes.places;
                cm.post_recv(
                    id,
                    place as u64,
                    memory.slice(place * sizes.place()..place * sizes.place() + sizes.place())?,
                )?;
            }
        }
        Ok(Self { id, sizes, memory })
    }

    pub const fn id(&self) -> CmId {
        self.id
    }

    pub const fn sends(&self) -> u32 {
        self.sizes.sends
    }

    /// Sets what is sent.
    pub fn say(&self, message: &[u8]) -> Result<()> {
        if let Some(memory) = &self.memory {
            memory.copy_in(self.sizes.end(), message)?;
        }
        Ok(())
    }

    /// Where that is.
    pub fn sge(&self) -> Result<Sge> {
        let memory = self.memory.as_ref();
        let sge = memory.and_then(|memory| memory.sge(self.sizes.end(), self.sizes.size));
        sge.ok_or_else(|| "there is no memory to send from".into())
    }

    /// The bytes that were received in a place: those in front of the message, and the message.
    pub fn received(&self, place: usize) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut header = vec![0; self.sizes.place()];
        if let Some(memory) = &self.memory {
            memory.copy_out(place * self.sizes.place(), &mut header)?;
        }
        let message = header.split_off(self.sizes.header);
        Ok((header, message))
    }

    /// Waits until all that was posted is sent.
    pub fn sent(&self, cm: &mut Cm<'_, 'd, P>) -> Result<()> {
        for _ in 0..self.sizes.sends {
            let deadline = cm.now() + SILENCE;
            let _ = cm
                .get_send_comp_until(self.id, deadline)
                .map_err(failed("send"))?;
        }
        Ok(())
    }

    /// Waits for a message.
    pub fn receive(&self, cm: &mut Cm<'_, 'd, P>) -> Result<Wc> {
        let deadline = cm.now() + SILENCE;
        self.check(cm.get_recv_comp_until(self.id, deadline))
    }

    /// That a message came, and all of it.
    pub fn check(&self, wc: std::result::Result<Wc, RdmaError>) -> Result<Wc> {
        let wc = wc.map_err(failed("receive"))?;
        if wc.byte_len as usize == self.sizes.place() {
            return Ok(wc);
        }
        Err(format!("a message of {} bytes came", wc.byte_len).into())
    }
}

fn failed(what: &str) -> impl Fn(RdmaError) -> String {
    move |error| format!("{what} failed: {error}")
}
