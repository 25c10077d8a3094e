//! An InfiniBand subnet in one switch, with a responder for subnet administration behind a separate port.
//!
//! What it answers is written from the records' tables, with nothing of the library's: offsets, not fields.

mod administration;
mod numbered;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use connectx_model::link::{Link, Switch, Timing};
use connectx_model::roce::env::Encapsulation;
use connectx_model::roce::packet::{Bth, Deth, Extended, ICRC_LEN, Packet, Repr};
use connectx_model::roce::transport::{GSI_QKEY, GSI_QPN};

pub use administration::{Administration, Group, Path, Port};
pub use numbered::infiniband_port;

/// LID of subnet administration, if it is not given another one: what the models have for the subnet manager's.
pub const SA_LID: u16 = 1;

/// Where the responder answers too, with a queue pair and a Q_Key of its own: the port that questions are redirected to.
pub const OTHER_LID: u16 = 0xbffe;
/// Its queue pair.
pub const OTHER_QPN: u32 = 0x45;
/// The Q_Key of that.
pub const OTHER_QKEY: u32 = 0x0012_3456;

/// A management datagram.
pub type Datagram = [u8; 256];

/// The fault of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The question gets lost.
    QuestionLost,
    /// The answer gets lost; what was asked for is done.
    AnswerLost,
    /// The answer comes so much later.
    Late(Duration),
    /// There is too much to do.
    Busy,
    /// The answer is no, with this status.
    Status(u16),
    /// Another port answers: the LID, the queue pair and the Q_Key are these.
    Redirected(u16, u32, u32),
    /// A byte of the answer is another one.
    Mangled {
        /// The index of the MAD's byte.
        at: usize,
        /// Its value.
        byte: u8,
    },
    /// It comes twice.
    Twice,
}

/// The state that a test and the link share.
#[derive(Debug, Default)]
pub struct State {
    /// The records of subnet administration.
    pub administration: Administration,
    /// It does not answer at all.
    pub dead: bool,
    /// The faults of the next answers, one each.
    pub faults: VecDeque<Fault>,
    /// All questions that came, and all answers that were sent.
    pub questions: Vec<Datagram>,
    /// The number of the questions that came to the other port.
    pub elsewhere: usize,
    /// See `questions`.
    pub answers: Vec<Datagram>,
    /// All frames, if they are to be kept.
    pub frames: Option<Vec<Vec<u8>>>,
    outbox: Vec<(Duration, Vec<u8>)>,
    /// The frame that the last question came in.
    asker: Vec<u8>,
}

/// A handle on a subnet.
#[derive(Debug, Clone, Default)]
pub struct Subnet(Arc<Mutex<State>>);

impl Subnet {
    /// Looks at the subnet, or sets its faults.
    pub fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.lock())
    }

    /// The link of a world with so many functions and exits. What is for subnet administration does not leave it by an exit.
    #[must_use]
    pub fn link(&self, ports: usize) -> Box<dyn Link> {
        let mut switch = Switch::keeping(ports + 1, Timing::default());
        // From itself to itself: the switch learns where it is, and sends it nowhere.
        for lid in [self.lock().administration.lid, OTHER_LID] {
            let own = mac(lid);
            switch.send(ports, &[&own[..], &own, &[0; 2]].concat(), Duration::ZERO);
        }
        Box::new(Fabric {
            switch,
            port: ports,
            subnet: self.clone(),
            frame: Vec::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address that carries a LID, at service level 0.
fn mac(lid: u16) -> [u8; 6] {
    let [high, low] = lid.to_be_bytes();
    [0x02, 0x1b, 0, 0, high, low]
}

struct Fabric {
    switch: Switch,
    port: usize,
    subnet: Subnet,
    frame: Vec<u8>,
}

impl Fabric {
    fn serve(&mut self, now: Duration) {
        let mut state = self.subnet.lock();
        while self.switch.receive(self.port, now, &mut self.frame) {
            state.take(&self.frame, now);
        }
        let (due, later) = std::mem::take(&mut state.outbox)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        state.outbox = later;
        for (_, frame) in due {
            state.keep(&frame);
            self.switch.send(self.port, &frame, now);
        }
    }
}

impl Link for Fabric {
    fn send(&mut self, from: usize, frame: &[u8], now: Duration) {
        self.subnet.lock().keep(frame);
        self.switch.send(from, frame, now);
        self.serve(now);
    }

    fn receive(&mut self, to: usize, now: Duration, frame: &mut Vec<u8>) -> bool {
        self.serve(now);
        self.switch.receive(to, now, frame)
    }

    fn next_arrival(&self) -> Option<Duration> {
        let late = self.subnet.lock().outbox.iter().map(|(at, _)| *at).min();
        self.switch.next_arrival().into_iter().chain(late).min()
    }
}

impl State {
    fn keep(&mut self, frame: &[u8]) {
        if let Some(frames) = &mut self.frames {
            frames.push(frame.to_vec());
        }
    }

    /// Sends a datagram to the port that asked last.
    pub fn tell(&mut self, datagram: &Datagram) {
        let Ok(packet) = Packet::parse(&self.asker) else {
            return;
        };
        let frame = back(&packet, datagram);
        self.outbox.push((Duration::ZERO, frame));
    }

    fn take(&mut self, frame: &[u8], now: Duration) {
        let Ok(packet) = Packet::parse(frame) else {
            return;
        };
        let to = packet.repr.headers.path.destination_mac;
        // At any service level.
        let is_to = |own: [u8; 6]| to[..3] == own[..3] && to[4..] == own[4..];
        let here = is_to(mac(self.administration.lid));
        let elsewhere = is_to(mac(OTHER_LID));
        let Ok(asked) = Datagram::try_from(packet.payload) else {
            return;
        };
        let queue = (
            packet.repr.bth.destination_qpn,
            packet.repr.extended.deth.qkey,
        );
        let for_us =
            here && queue == (GSI_QPN, GSI_QKEY) || elsewhere && queue == (OTHER_QPN, OTHER_QKEY);
        // Class 3.
        if !for_us || asked[1] != 3 {
            return;
        }
        self.questions.push(asked);
        self.elsewhere += usize::from(elsewhere);
        self.asker = frame.to_vec();
        if self.dead {
            return;
        }
        let fault = self.faults.pop_front();
        if fault == Some(Fault::QuestionLost) {
            return;
        }
        let refused = match fault {
            Some(Fault::Busy) => Some(1),
            Some(Fault::Redirected(..)) => Some(2),
            Some(Fault::Status(status)) => Some(status),
            _ => None,
        };
        let Some(mut answer) = self.administration.answer(&asked, refused) else {
            return;
        };
        let (mut at, mut times) = (now, 1);
        match fault {
            Some(Fault::AnswerLost) => times = 0,
            Some(Fault::Late(by)) => at = now + by,
            Some(Fault::Redirected(lid, qpn, qkey)) => redirect(&mut answer, lid, qpn, qkey),
            Some(Fault::Mangled { at, byte }) => answer[at] = byte,
            Some(Fault::Twice) => times = 2,
            _ => {}
        }
        let frame = back(&packet, &answer);
        for _ in 0..times {
            self.answers.push(answer);
            self.outbox.push((at, frame.clone()));
        }
    }
}

/// ClassPortInfo with where to ask instead (IBTA volume 1, chapter 13.4.8.1), at service level 2 in the default partition.
fn redirect(answer: &mut Datagram, lid: u16, qpn: u32, qkey: u32) {
    answer[3] = 0x81;
    answer[16..18].copy_from_slice(&[0, 1]);
    let info = &mut answer[56..];
    info.fill(0);
    info[..2].copy_from_slice(&[1, 2]);
    info[25] = 2 << 4;
    info[28..30].copy_from_slice(&lid.to_be_bytes());
    info[30..32].copy_from_slice(&[0xff; 2]);
    info[32..36].copy_from_slice(&qpn.to_be_bytes());
    info[36..40].copy_from_slice(&qkey.to_be_bytes());
}

/// The answer, on the way that the question came.
fn back(packet: &Packet<'_>, answer: &Datagram) -> Vec<u8> {
    let mut headers = packet.repr.headers;
    let path = &mut headers.path;
    std::mem::swap(&mut path.source_mac, &mut path.destination_mac);
    if let Encapsulation::V1 {
        source,
        destination,
    } = &mut path.encapsulation
    {
        std::mem::swap(source, destination);
    }
    let reply = Repr {
        headers,
        bth: Bth {
            destination_qpn: packet.repr.extended.deth.source_qpn,
            // A full member of every partition: limited ones hear it.
            pkey: packet.repr.bth.pkey | 0x8000,
            ..packet.repr.bth
        },
        extended: Extended {
            deth: Deth {
                qkey: GSI_QKEY,
                source_qpn: packet.repr.bth.destination_qpn,
            },
            ..Extended::default()
        },
    };
    let mut frame = vec![0; reply.header_len() + answer.len() + ICRC_LEN];
    let filled = reply.emit(&mut frame, answer.len(), |payload| {
        payload.copy_from_slice(answer);
        Ok::<_, Infallible>(())
    });
    match filled {
        Ok(_) => frame,
        Err(never) => match never {},
    }
}
