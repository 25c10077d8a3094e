//! A device that is nothing but memory, keys and lists, and two of them joined by a link.

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use std::time::Duration;

use connectx_model::link::rng::Rng;
use connectx_model::link::{Cable, Link};
use connectx_model::roce::env::*;
use connectx_model::roce::headers::Headers;
use connectx_model::roce::opcode::{Opcode, Operation, Service};
use connectx_model::roce::packet::{Bth, Extended, MAX_FRAME, Packet, Repr};
use connectx_model::roce::psn::Psn;
use connectx_model::roce::transport::{Scratch, Transport};

/// Keys of every mock: local, remote with all rights, remote without rights.
pub(crate) const LKEY: u32 = 0x100;
pub(crate) const RKEY: u32 = 0x200;
pub(crate) const RKEY_NO_RIGHTS: u32 = 0x300;
/// Where the memory begins in the keys' address space.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
pub(crate) const MEMORY: usize = 1 << 20;

#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) local: bool,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// Memory content without short periods; made once, for it is slow in debug builds.
fn pattern() -> &'static [u8] {
    static PATTERN: OnceLock<Vec<u8>> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut rng = Rng::new(0xda7a);
        let len = MEMORY + 256 * 77;
        (0..len.div_ceil(8))
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect()
    })
}

pub(crate) struct Mock {
    pub(crate) memory: Vec<u8>,
    pub(crate) keys: HashMap<u32, Key>,
    pub(crate) sends: VecDeque<Result<SendWork, Syndrome>>,
    pub(crate) recvs: VecDeque<RecvWork>,
    /// XRC shared receive queues of the target's domain, by number.
    pub(crate) xrc_queues: HashMap<u32, VecDeque<RecvWork>>,
    /// For whom the peer's accesses were made.
    pub(crate) domains: Vec<Domain>,
    pub(crate) next_index: u16,
    pub(crate) next_recv_index: u16,
    /// Sent as credits when set.
    pub(crate) credits: bool,
    pub(crate) sent: Vec<SendCompletion>,
    pub(crate) received: Vec<RecvCompletion>,
    pub(crate) events: Vec<QpEvent>,
    pub(crate) error: Option<ErrorScope>,
    pub(crate) frames: VecDeque<Vec<u8>>,
    pub(crate) counters: [u64; Counter::COUNT],
    pub(crate) parse_errors: u64,
    /// Operations that asked for local execution.
    pub(crate) local: u32,
    pub(crate) atomics_executed: u64,
    /// Handed out and not completed.
    pub(crate) out_sends: VecDeque<u16>,
    pub(crate) out_recvs: VecDeque<u16>,
}

impl Mock {
    pub(crate) fn new(seed: u8) -> Mock {
        let all = Key {
            local: true,
            read: true,
            write: true,
            atomic: true,
        };
        let keys = [
            (LKEY, all),
            (RKEY, all),
            (
                RKEY_NO_RIGHTS,
                Key {
                    local: true,
                    read: false,
                    write: false,
                    atomic: false,
                },
            ),
        ];
        Mock {
            memory: pattern()[usize::from(seed) * 77..][..MEMORY].to_vec(),
            keys: keys.into(),
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            xrc_queues: HashMap::new(),
            domains: Vec::new(),
            next_index: 0,
            next_recv_index: 0,
            credits: false,
            sent: Vec::new(),
            received: Vec::new(),
            events: Vec::new(),
            error: None,
            frames: VecDeque::new(),
            counters: [0; Counter::COUNT],
            parse_errors: 0,
            local: 0,
            atomics_executed: 0,
            out_sends: VecDeque::new(),
            out_recvs: VecDeque::new(),
        }
    }

    pub(crate) fn count_of(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    fn range(
        &self,
        key: u32,
        addr: u64,
        len: usize,
        right: impl Fn(&Key) -> bool,
    ) -> Result<std::ops::Range<usize>, AccessError> {
        let key = self.keys.get(&key).ok_or(AccessError::Key)?;
        let start = addr.checked_sub(BASE).ok_or(AccessError::Range)? as usize;
        let end = start.checked_add(len).ok_or(AccessError::Range)?;
        if end > self.memory.len() {
            return Err(AccessError::Range);
        }
        if !right(key) {
            return Err(AccessError::Rights);
        }
        Ok(start..end)
    }

    /// Posts a receive buffer at an offset.
    pub(crate) fn post_recv(&mut self, offset: usize, len: u32) {
        let index = self.next_recv_index;
        self.next_recv_index = index.wrapping_add(1);
        self.recvs.push_back(RecvWork {
            index,
            segments: vec![memory(offset, len)],
        });
    }

    /// Posts a receive buffer to an XRC shared receive queue.
    pub(crate) fn post_xrc_recv(&mut self, srqn: u32, offset: usize, len: u32) -> u16 {
        let index = self.next_recv_index;
        self.next_recv_index = index.wrapping_add(1);
        let queue = self.xrc_queues.entry(srqn).or_default();
        queue.push_back(RecvWork {
            index,
            segments: vec![memory(offset, len)],
        });
        index
    }

    /// Posts a send; index and opcode are filled.
    pub(crate) fn post_send(&mut self, mut work: SendWork) -> u16 {
        let index = self.next_index;
        self.next_index = index.wrapping_add(1);
        work.index = index;
        work.signaled = true;
        self.sends.push_back(Ok(work));
        index
    }
}

/// A piece of the mock's memory.
pub(crate) fn memory(offset: usize, len: u32) -> Segment {
    Segment::Memory {
        lkey: LKEY,
        addr: BASE + offset as u64,
        len,
    }
}

impl Env for Mock {
    fn next_send(&mut self, work: &mut SendWork) -> Result<bool, BadWqe> {
        match self.sends.pop_front() {
            None => Ok(false),
            Some(Ok(posted)) => {
                self.out_sends.push_back(posted.index);
                *work = posted;
                Ok(true)
            }
            Some(Err(syndrome)) => {
                work.index = self.next_index;
                self.out_sends.push_back(work.index);
                Err(BadWqe(syndrome))
            }
        }
    }

    fn xrc_check(&mut self, srqn: u32) -> Result<(), AccessError> {
        let known = self.xrc_queues.contains_key(&srqn);
        known.then_some(()).ok_or(AccessError::Domain)
    }

    fn next_recv(&mut self, domain: Domain, work: &mut RecvWork) -> Result<bool, BadWqe> {
        let queue = match domain {
            Domain::Own => &mut self.recvs,
            Domain::Xrc(srqn) => self.xrc_queues.get_mut(&srqn).unwrap(),
        };
        let Some(posted) = queue.pop_front() else {
            return Ok(false);
        };
        self.out_recvs.push_back(posted.index);
        *work = posted;
        Ok(true)
    }

    fn recv_credits(&mut self) -> Option<u32> {
        self.credits.then_some(self.recvs.len() as u32)
    }

    fn execute_local(&mut self, _work: &SendWork) -> Result<(), Syndrome> {
        self.local += 1;
        Ok(())
    }

    fn gather(&mut self, lkey: u32, addr: u64, data: &mut [u8]) -> Result<(), AccessError> {
        let range = self.range(lkey, addr, data.len(), |key| key.local)?;
        data.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn scatter(&mut self, _: Domain, lkey: u32, addr: u64, data: &[u8]) -> Result<(), AccessError> {
        let range = self.range(lkey, addr, data.len(), |key| key.local)?;
        self.memory[range].copy_from_slice(data);
        Ok(())
    }

    fn remote_check(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        len: u32,
        right: RemoteRight,
    ) -> Result<(), AccessError> {
        self.domains.push(domain);
        self.range(rkey, addr, len as usize, |key| match right {
            RemoteRight::Read => key.read,
            RemoteRight::Write => key.write,
            RemoteRight::Atomic => key.atomic,
        })
        .map(|_| ())
    }

    fn remote_read(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &mut [u8],
    ) -> Result<(), AccessError> {
        self.domains.push(domain);
        let range = self.range(rkey, addr, data.len(), |key| key.read)?;
        data.copy_from_slice(&self.memory[range]);
        Ok(())
    }

    fn remote_write(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &[u8],
    ) -> Result<(), AccessError> {
        self.domains.push(domain);
        let range = self.range(rkey, addr, data.len(), |key| key.write)?;
        self.memory[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic_read(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &mut [u8; 8],
    ) -> Result<(), AccessError> {
        self.domains.push(domain);
        let range = self.range(rkey, addr, 8, |key| key.atomic)?;
        data.copy_from_slice(&self.memory[range]);
        self.atomics_executed += 1;
        Ok(())
    }

    fn atomic_write(
        &mut self,
        domain: Domain,
        rkey: u32,
        addr: u64,
        data: &[u8; 8],
    ) -> Result<(), AccessError> {
        self.domains.push(domain);
        let range = self.range(rkey, addr, 8, |key| key.atomic)?;
        self.memory[range].copy_from_slice(data);
        Ok(())
    }

    fn invalidate(&mut self, _: Domain, rkey: u32) -> Result<(), AccessError> {
        self.keys.remove(&rkey).map(|_| ()).ok_or(AccessError::Key)
    }

    fn complete_send(&mut self, completion: SendCompletion) {
        // The seam's contract: once each, in the order of handing out.
        assert_eq!(self.out_sends.pop_front(), Some(completion.index));
        self.sent.push(completion);
    }

    fn complete_recv(&mut self, completion: RecvCompletion) {
        assert_eq!(self.out_recvs.pop_front(), Some(completion.index));
        self.received.push(completion);
    }

    fn scatter_to_cqe(&mut self, _data: &[u8]) {
        panic!("no queue pair here has asked for it");
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }

    fn enter_error(&mut self, scope: ErrorScope) {
        assert_eq!(self.error, None, "failed twice");
        self.error = Some(scope);
    }

    fn migrate(&mut self, _: PathMigration) -> Option<QpConfig> {
        unreachable!("no alternate path is given")
    }

    fn transmit(&mut self, frame: &mut Vec<u8>) {
        self.frames.push_back(std::mem::take(frame));
    }

    fn count(&mut self, counter: Counter) {
        self.counters[counter as usize] += 1;
    }
}

pub(crate) struct Side {
    pub(crate) qp: Transport,
    pub(crate) env: Mock,
}

/// Two QPs and what is between them.
pub(crate) struct World {
    pub(crate) sides: [Side; 2],
    pub(crate) link: Box<dyn Link>,
    pub(crate) now: Duration,
    /// Frames sent per call of `run`.
    pub(crate) budget: usize,
    scratch: Scratch,
}

fn path(from: u8, to: u8, v6: bool) -> Path {
    Path {
        source_mac: [2, 0, 0, 0, 0, from],
        destination_mac: [2, 0, 0, 0, 0, to],
        vlan: None,
        encapsulation: if v6 {
            let addr = |n: u8| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, n.into());
            Encapsulation::V2Ipv6 {
                source: addr(from),
                destination: addr(to),
            }
        } else {
            Encapsulation::V2Ipv4 {
                source: Ipv4Addr::new(10, 0, 0, from),
                destination: Ipv4Addr::new(10, 0, 0, to),
            }
        },
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        udp_source_port: 0xc000 + u16::from(from),
    }
}

/// The way from a side to the other.
pub(crate) fn path_of(side: usize) -> Path {
    path(side as u8 + 1, 2 - side as u8, false)
}

/// The configuration of one side; PSNs differ per direction.
pub(crate) fn config(kind: QpKind, side: usize, mtu: usize) -> QpConfig {
    let psn = [0x12_3456, 0xff_fff0];
    QpConfig {
        kind,
        qpn: 0x50 + side as u32,
        source_qpn: if kind == QpKind::Gsi {
            1
        } else {
            0x50 + side as u32
        },
        state: QpState::Reset,
        mtu,
        max_message: 1 << 30,
        remote_qpn: 0x51 - side as u32,
        send_psn: psn[side],
        recv_psn: psn[1 - side],
        ack_timeout: 8,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        cqe_scatter: CqeScatter::default(),
        log_ack_req_freq: 4,
        access: RemoteAccess {
            read: true,
            write: true,
            atomic: true,
        },
        pkey: 0xffff,
        qkey: 0x1111_1111,
        dc_key: 0,
        errored_streams: 1,
        path: kind.connected().then(|| path_of(side)),
        migration: PathMigration::Migrated,
        alternate: None,
        advertise_credits: false,
        atomics_big_endian: false,
    }
}

impl World {
    pub(crate) fn new(kind: QpKind, mtu: usize) -> World {
        World::with(Box::new(Cable::new()), |side| config(kind, side, mtu))
    }

    /// Both sides in RTS.
    pub(crate) fn with(link: Box<dyn Link>, config: impl Fn(usize) -> QpConfig) -> World {
        let side = |i: usize| {
            let mut config = config(i);
            let mut side = Side {
                qp: Transport::new(config),
                env: Mock::new(i as u8),
            };
            for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
                config.state = state;
                side.qp.configure(config, &mut side.env, Duration::ZERO);
            }
            side
        };
        World {
            sides: [side(0), side(1)],
            link,
            now: Duration::ZERO,
            budget: 16,
            scratch: Scratch::default(),
        }
    }

    /// One round; `false` when nothing happened.
    fn round(&mut self) -> bool {
        let mut busy = false;
        let mut frame = Vec::new();
        for (i, side) in self.sides.iter_mut().enumerate() {
            while self.link.receive(i, self.now, &mut frame) {
                busy = true;
                match Packet::parse(&frame) {
                    Ok(packet) => side.qp.receive(&packet, &mut side.env, self.now),
                    Err(_) => side.env.parse_errors += 1,
                }
            }
            if side.qp.next_deadline().is_some_and(|at| at <= self.now) {
                busy = true;
                side.qp.on_timer(&mut side.env, self.now);
            }
            while side
                .qp
                .run(&mut side.env, &mut self.scratch, self.now, self.budget)
            {}
            while let Some(frame) = side.env.frames.pop_front() {
                busy = true;
                self.link.send(i, &frame, self.now);
            }
        }
        busy
    }

    /// Lets a side send up to `budget` frames, which are returned and go nowhere.
    pub(crate) fn intercept(&mut self, side: usize, budget: usize) -> Vec<Vec<u8>> {
        let Side { qp, env } = &mut self.sides[side];
        qp.run(env, &mut self.scratch, self.now, budget);
        env.frames.drain(..).collect()
    }

    /// Hands a frame to a side, past the link.
    pub(crate) fn deliver(&mut self, side: usize, frame: &[u8]) {
        let packet = Packet::parse(frame).unwrap();
        let Side { qp, env } = &mut self.sides[side];
        qp.receive(&packet, env, self.now);
    }

    /// Lets everything happen until nothing more will, or until `limit`.
    pub(crate) fn settle_until(&mut self, limit: Duration) {
        loop {
            while self.round() {
                self.now += Duration::from_nanos(1);
            }
            let deadlines = self.sides.iter().filter_map(|s| s.qp.next_deadline());
            let Some(next) = deadlines.chain(self.link.next_arrival()).min() else {
                return;
            };
            if next > limit {
                return;
            }
            self.now = self.now.max(next);
        }
    }

    /// Lets everything happen until nothing more will.
    pub(crate) fn settle(&mut self) {
        let limit = self.now + Duration::from_secs(3600);
        self.settle_until(limit);
        assert!(self.now < limit, "still busy after an hour");
    }

    pub(crate) fn posts(&mut self, side: usize, work: SendWork) -> u16 {
        self.sides[side].env.post_send(work)
    }

    /// All send completions of a side as results, in order.
    pub(crate) fn results(&self, side: usize) -> Vec<Result<(), Syndrome>> {
        self.sides[side].env.sent.iter().map(|c| c.result).collect()
    }
}

pub(crate) fn send(op: SendOp, segments: Vec<Segment>) -> SendWork {
    SendWork {
        op,
        segments,
        ..SendWork::default()
    }
}

pub(crate) fn remote(op: SendOp, segments: Vec<Segment>, offset: usize) -> SendWork {
    SendWork {
        op,
        segments,
        remote_addr: BASE + offset as u64,
        rkey: RKEY,
        ..SendWork::default()
    }
}

/// An RC packet made by hand, of the side `from`.
pub(crate) fn packet(
    from: usize,
    operation: Operation,
    psn: u32,
    extended: Extended,
    payload: &[u8],
) -> Vec<u8> {
    packet_of(Service::Rc, from, operation, psn, extended, payload)
}

/// The same of any service.
pub(crate) fn packet_of(
    service: Service,
    from: usize,
    operation: Operation,
    psn: u32,
    extended: Extended,
    payload: &[u8],
) -> Vec<u8> {
    let repr = Repr {
        headers: Headers::new(path_of(from)),
        bth: Bth {
            opcode: Opcode::new(service, operation),
            solicited: false,
            migration: true,
            pkey: 0xffff,
            fecn: false,
            becn: false,
            destination_qpn: 0x51 - from as u32,
            ack_request: true,
            psn: Psn::new(psn),
        },
        extended,
    };
    let mut frame = vec![0; MAX_FRAME];
    let len = repr.emit(&mut frame, payload.len(), |out| {
        out.copy_from_slice(payload);
        Ok::<_, ()>(())
    });
    frame.truncate(len.unwrap());
    frame
}

/// A datagram to the other side.
pub(crate) fn datagram(
    side: usize,
    op: SendOp,
    segments: Vec<Segment>,
    qpn: u32,
    qkey: u32,
) -> SendWork {
    SendWork {
        datagram: Some(DatagramAddress {
            path: path_of(side),
            remote_qpn: qpn,
            qkey,
        }),
        ..send(op, segments)
    }
}
