//! Dynamic connections: each end has a target, and an initiator whose work requests name the other end's. RDMA WRITE, RDMA READ
//! and SEND each way, every byte verified, and a wrong access key, which is refused. The ends find each other, and
//! tell each other their targets, over an ordinary connection of the connection manager.
//!
//! By default both run here, on two device models with a cable between them; with `--device vfio:BDF` one runs on a card.

use std::process::ExitCode;
use std::time::Duration;

use bareverbs::cm::rdma::{AddrInfo, CmId, PortSpace, QpInit, SendFlags};
use bareverbs::verbs::cq::{CqEntries, CqeSize, InlineData};
use bareverbs::verbs::qp::{QpAttr, QpCap};
use bareverbs::verbs::{
    Access, AddressHandle, Buffer, Cq, CqInit, DcTarget, Dci, Dct, DctInitAttr, Device, Mtu, Pd,
    Platform, Qp, QpInitAttr, QpState, Qpn, RKey, Remote, Srq, SrqAttr, Wc, WcOpcode, WcStatus,
};
use bareverbs_command_line::{PORTS, is_port};
use bareverbs_examples::Result;
use bareverbs_examples::ends::{Ends, ends};
use bareverbs_examples::program::{self, Program};
use bareverbs_node::{About, Cm, DevicePlatform, Host};
use bpaf::Bpaf;

/// Bytes that are written and read.
const LEN: usize = 20_000;
/// Bytes of the messages, in this order.
const MESSAGES: [usize; 4] = [1, 64, 1000, 4096];
/// Bytes of the longest message that comes in the entry of its completion, where that is asked for.
const INSIDE: usize = 64;
/// Bytes of a receive.
const ROOM: usize = 4096;
/// Bytes of a [`Word`].
const WORD: usize = 24;
/// The largest packet of both ends: it fits the frames of 1500 bytes that networks carry by default.
const MTU: Mtu = Mtu::B1024;
/// The longest time that one step of the other end takes.
const SILENCE: Duration = Duration::from_secs(30);

/// RDMA WRITE, RDMA READ and SEND over dynamic connections, both ways, every byte verified.
///
/// With neither -s nor -c server and client run in this process, on two ConnectX models that are cabled together, or on two
/// cards, the server's named first.
#[derive(Bpaf, Debug, Clone)]
#[bpaf(options)]
struct Options {
    #[bpaf(external)]
    ends: Ends,
    /// Port.
    #[bpaf(
        short('p'),
        argument("PORT"),
        last,
        guard(is_port, PORTS),
        fallback(7176),
        display_fallback
    )]
    port: u16,
    /// Let messages of up to 64 bytes come in the entries of their completions.
    #[bpaf(long("cqe-scatter"), switch, last)]
    cqe_scatter: bool,
}

fn main() -> ExitCode {
    program::main("dc", &options(), |options| options.ends.run(options))
}

impl Program for Options {
    type Served = ();
    type Found = ();

    const CLIENT: usize = 1;

    fn name(&self) -> &'static str {
        "dc"
    }

    fn serve(&self, cm: &mut Cm<'_, '_>, address: Host, listening: &mut dyn FnMut()) -> Result<()> {
        let here = AddrInfo {
            port_space: PortSpace::Tcp,
            src_addr: Some(address.at(PortSpace::Tcp, self.port)),
            ..AddrInfo::hints(true)
        };
        let listener = cm.create_ep(&here, None, Some(&mut queues()))?;
        cm.listen(listener, 1)?;
        listening();
        let id = cm.get_request(listener)?;
        let words = expect_words(cm, id)?;
        cm.accept(id, None)?;
        let mut end = End::new(cm, id, words, self.cqe_scatter)?;
        end.passive(cm, 1)?;
        end.active(cm, 2)?;
        cm.disconnect(id)?;
        println!("server: all is right");
        Ok(())
    }

    fn work(
        &self,
        cm: &mut Cm<'_, '_>,
        _: &About,
        [source, server]: [Host; 2],
        _: bool,
    ) -> Result<()> {
        let there = AddrInfo {
            port_space: PortSpace::Tcp,
            src_addr: Some(source.at(PortSpace::Tcp, 0)),
            dst_addr: Some(server.at(PortSpace::Tcp, self.port)),
            ..AddrInfo::hints(false)
        };
        let id = cm.create_ep(&there, None, Some(&mut queues()))?;
        let words = expect_words(cm, id)?;
        cm.connect(id, None)?;
        let mut end = End::new(cm, id, words, self.cqe_scatter)?;
        end.active(cm, 1)?;
        end.passive(cm, 2)?;
        cm.disconnect(id)?;
        println!("client: all is right");
        Ok(())
    }

    fn announce(&self, address: Host) {
        println!("listening on {address} port {}", self.port);
    }

    fn compare(&self, (): &(), (): &()) -> Result<()> {
        Ok(())
    }
}

/// The message of the ends over their connection: a target, and memory that it reaches. All zeros: what was announced
/// is done.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    dctn: u32,
    rkey: u32,
    access_key: u64,
    address: u64,
}

impl Word {
    fn to_bytes(self) -> [u8; WORD] {
        let mut bytes = [0; WORD];
        bytes[..4].copy_from_slice(&self.dctn.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.access_key.to_be_bytes());
        bytes[16..].copy_from_slice(&self.address.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; WORD]) -> Self {
        let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
        let quad = |at: usize| {
            let eight = rest[at..at + 8].iter();
            eight.fold(0, |all, &byte| all << 8 | u64::from(byte))
        };
        Self {
            dctn: u32::from_be_bytes([a, b, c, d]),
            rkey: u32::from_be_bytes([e, f, g, h]),
            access_key: quad(0),
            address: quad(8),
        }
    }
}

fn queues<'a, 'd, P: Platform>() -> QpInit<'a, 'd, P> {
    QpInit {
        cap: QpCap {
            max_send_wr: 2,
            max_recv_wr: 4,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: WORD as u32,
        },
        ..QpInit::default()
    }
}

type Region<'d> = Buffer<'d, DevicePlatform>;

/// Receives for all words of the other end.
fn expect_words<'d>(cm: &mut Cm<'_, 'd>, id: CmId) -> Result<Region<'d>> {
    let words = cm.reg_msgs(id, 4 * WORD)?;
    for at in 0..4 {
        cm.post_recv(id, at as u64, words.slice(at * WORD..at * WORD + WORD)?)?;
    }
    Ok(words)
}

fn pattern(seed: u8, at: usize) -> u8 {
    (at.wrapping_mul(131) + at / 251) as u8 ^ seed
}

/// One end: a target with memory and an SRQ, and the way to the other end's.
struct End<'d> {
    id: CmId,
    words: Region<'d>,
    dct: Dct<'d, DevicePlatform>,
    came: Cq<'d, DevicePlatform>,
    /// Behind the target, which uses it.
    _srq: Srq<'d, DevicePlatform>,
    /// The memory that the other end reaches.
    open: Region<'d>,
    /// The messages.
    inbox: Region<'d>,
    pd: Pd<'d, DevicePlatform>,
    device: &'d Device<'d, DevicePlatform>,
    attr: QpAttr,
    there: Word,
    cqe_scatter: bool,
}

impl<'d> End<'d> {
    /// Makes a target for the other end of a connection, and tells it.
    fn new(cm: &mut Cm<'_, 'd>, id: CmId, words: Region<'d>, cqe_scatter: bool) -> Result<Self> {
        let device = cm.device();
        let pd = device.alloc_pd()?;
        let (attr, _) = cm.init_qp_attr(id, QpState::Rtr)?;
        let mut cq_init = CqInit::new(15);
        if cqe_scatter {
            cq_init.entries = CqEntries::new(None, CqeSize::Bytes128);
        }
        let came = device.create_cq(cq_init)?;
        let mut srq = pd.create_srq(&mut SrqAttr {
            max_wr: 15,
            max_sge: 1,
            srq_limit: 0,
        })?;
        let inbox = pd.alloc_buffer(MESSAGES.len() * ROOM, Access::LOCAL_WRITE)?;
        for at in 0..MESSAGES.len() {
            srq.post(at as u64, &[inbox.slice(at * ROOM..(at + 1) * ROOM)?])?;
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let open = pd.alloc_buffer(LEN, access)?;
        let init = DctInitAttr {
            cq: &came,
            srq: &srq,
            access_key: program::seed(),
            access,
            path_mtu: MTU,
            sgid_index: attr.ah_attr.sgid_index as u8,
            hop_limit: attr.ah_attr.hop_limit,
            traffic_class: attr.ah_attr.traffic_class,
            flow_label: attr.ah_attr.flow_label,
            sl: attr.ah_attr.sl,
            min_rnr_timer: 12,
            pkey_index: 0,
        };
        let dct = match cqe_scatter {
            true => pd.create_dct_with_cqe_scatter(&init)?,
            false => pd.create_dct(&init)?,
        };
        let mut end = Self {
            id,
            words,
            dct,
            came,
            _srq: srq,
            open,
            inbox,
            pd,
            device,
            attr,
            there: Word::default(),
            cqe_scatter,
        };
        let here = Word {
            dctn: end.dct.dctn().number(),
            rkey: end.open.rkey().0,
            access_key: end.dct.access_key(),
            address: end.open.addr(),
        };
        end.say(cm, here)?;
        end.there = end.hear(cm)?;
        Ok(end)
    }

    fn say(&mut self, cm: &mut Cm<'_, 'd>, word: Word) -> Result<()> {
        cm.post_send_inline(self.id, 0, &word.to_bytes(), SendFlags::SIGNALED)?;
        let _ = cm.get_send_comp_until(self.id, cm.now() + SILENCE)?;
        Ok(())
    }

    fn hear(&mut self, cm: &mut Cm<'_, 'd>) -> Result<Word> {
        let wc = cm.get_recv_comp_until(self.id, cm.now() + SILENCE)?;
        let mut bytes = [0; WORD];
        self.words.copy_out(wc.wr_id as usize * WORD, &mut bytes)?;
        Ok(Word::from_bytes(bytes))
    }

    /// An initiator, with its completions.
    fn initiator(&self) -> Result<Initiator<'d>> {
        let cq = self.device.create_cq(CqInit::new(15))?;
        let mut init = QpInitAttr::new(&cq, 8);
        init.cap.max_recv_wr = 0;
        init.cap.max_recv_sge = 0;
        let mut qp = self.pd.create_qp::<Dci>(&mut init)?;
        qp.activate(&QpAttr {
            path_mtu: MTU,
            port_num: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..self.attr
        })?;
        let ah = self.device.create_ah(&self.attr.ah_attr)?;
        Ok(Initiator { qp, cq, ah })
    }

    /// Writes to the other end, reads it back, and sends messages; the wrong key is refused.
    fn active(&mut self, cm: &mut Cm<'_, 'd>, seed: u8) -> Result<()> {
        let data = self.pd.alloc_buffer(2 * LEN, Access::LOCAL_WRITE)?;
        let bytes: Vec<u8> = (0..LEN).map(|at| pattern(seed, at)).collect();
        data.copy_in(0, &bytes)?;
        let there = self.there;
        let remote = Remote {
            addr: there.address,
            rkey: RKey(there.rkey),
        };
        let mut from = self.initiator()?;
        let ah = from.ah;
        let to = DcTarget {
            ah: &ah,
            dctn: Qpn::from_low_bits(there.dctn),
            access_key: there.access_key,
        };
        let (written, read) = (data.slice(..LEN)?, data.slice(LEN..)?);
        let mut batch = from.qp.send_queue().batch();
        batch.write(1, SendFlags::SIGNALED, to, remote, written)?;
        batch.read(2, SendFlags::SIGNALED, to, remote, &[read])?;
        for (at, len) in MESSAGES.into_iter().enumerate() {
            let message = data.slice(at..at + len)?;
            batch.send(3 + at as u64, SendFlags::SIGNALED, to, message)?;
        }
        drop(batch);
        for number in 1..3 + MESSAGES.len() as u64 {
            let wc = completed(cm, &mut from.cq)?;
            right(&wc)?;
            if wc.wr_id != number {
                return Err(format!("request {} is completed before {number}", wc.wr_id).into());
            }
        }
        let mut back = vec![0; LEN];
        data.copy_out(LEN, &mut back)?;
        if back != bytes {
            return Err("what was read is not what was written".into());
        }
        let mut other = self.initiator()?;
        let wrong = DcTarget {
            access_key: !there.access_key,
            ..to
        };
        let mut batch = other.qp.send_queue().batch();
        batch.write(
            9,
            SendFlags::SIGNALED,
            wrong,
            remote,
            data.slice(LEN..=LEN)?,
        )?;
        drop(batch);
        let wc = completed(cm, &mut other.cq)?;
        if wc.status != WcStatus::RemAccessErr {
            return Err(format!("with a wrong access key: {}", wc.status).into());
        }
        println!(
            "initiator: {LEN} bytes written and read, {} messages, and a wrong key is refused",
            MESSAGES.len()
        );
        self.say(cm, Word::default())?;
        self.hear(cm)?;
        Ok(())
    }

    /// Waits for what the other end does, and looks at all of it.
    fn passive(&mut self, cm: &mut Cm<'_, 'd>, seed: u8) -> Result<()> {
        self.hear(cm)?;
        let mut bytes = vec![0; LEN];
        self.open.copy_out(0, &mut bytes)?;
        let wanted: Vec<u8> = (0..LEN).map(|at| pattern(seed, at)).collect();
        if bytes != wanted {
            return Err("what was written here is not what should have been".into());
        }
        for (at, len) in MESSAGES.into_iter().enumerate() {
            let (wc, inside) = completed_with(cm, &mut self.came)?;
            right(&wc)?;
            if inside.is_some() != (self.cqe_scatter && len <= INSIDE) {
                return Err(format!("message {at} is not where it should be: {inside:?}").into());
            }
            let message = match inside {
                Some(inside) => inside.to_vec(),
                None => {
                    let mut message = vec![0; len];
                    self.inbox
                        .copy_out(wc.wr_id as usize * ROOM, &mut message)?;
                    message
                }
            };
            if (wc.opcode, wc.qp_num, wc.byte_len as usize)
                != (WcOpcode::Recv, self.dct.dctn(), len)
                || message != wanted[at..at + len]
            {
                return Err(format!("message {at} is not what was sent: {wc:?}").into());
            }
        }
        if let (_, refused @ (0 | 2..)) = self.dct.query()? {
            return Err(format!("{refused} requests had a wrong key instead of 1").into());
        }
        println!(
            "target: {LEN} bytes, {} messages, and one request with a wrong key",
            MESSAGES.len()
        );
        self.say(cm, Word::default())
    }
}

struct Initiator<'d> {
    qp: Qp<'d, DevicePlatform, Dci>,
    cq: Cq<'d, DevicePlatform>,
    ah: AddressHandle,
}

fn completed<'d>(cm: &mut Cm<'_, 'd>, cq: &mut Cq<'d, DevicePlatform>) -> Result<Wc> {
    Ok(completed_with(cm, cq)?.0)
}

/// With the message, if that is in the completion's entry.
fn completed_with<'d>(
    cm: &mut Cm<'_, 'd>,
    cq: &mut Cq<'d, DevicePlatform>,
) -> Result<(Wc, Option<InlineData>)> {
    let until = cm.now() + SILENCE;
    loop {
        if let Some(completion) = cq.poll()? {
            return Ok((completion.to_wc(), completion.inline_data()?));
        }
        if cm.now() > until {
            return Err("no completion".into());
        }
        cm.wait(cm.now())?;
    }
}

fn right(wc: &Wc) -> Result<()> {
    match wc.status {
        WcStatus::Success => Ok(()),
        status => Err(format!("{:?} failed: {status}", wc.opcode).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_command_line::parse_line;

    #[test]
    fn both_ends_on_models() {
        for line in [
            "",
            "--cqe-scatter",
            "--model-port infiniband",
            "--model-port infiniband -a gid",
        ] {
            let options = parse_line(&options(), line).expect(line);
            options.ends.run(&options).expect(line);
        }
    }

    #[test]
    fn words_are_what_they_were() {
        let word = Word {
            dctn: 0x12_3456,
            rkey: 0x789a_bcde,
            access_key: 0x0123_4567_89ab_cdef,
            address: 0xfedc_ba98_7654_3210,
        };
        let bytes = word.to_bytes();
        assert_eq!(bytes[..5], [0, 0x12, 0x34, 0x56, 0x78]);
        assert_eq!(Word::from_bytes(bytes).to_bytes(), bytes);
    }
}
