//! One end of a connection: its memory, its work, and what has to be in the memory afterwards.

use bareverbs_cm::rdma::*;
use bareverbs_core::qp::{Remote, SendData, SendOp, SendWr};
use bareverbs_core::{Access, Buffer, RKey, WcStatus};
use bareverbs_in_process::ModelPlatform;

use super::{Failure, Nodes, init};

/// Bytes of a WRITE and a READ: three packets, the last one short.
const BULK: usize = 9001;
const MESSAGE: usize = 700;
/// Offsets in an end's memory.
const COUNTER: usize = 0;
const TARGET: usize = 64;
const SOURCE: usize = TARGET + BULK + 63;
const FETCHED: usize = SOURCE + BULK + 72;
const BACK: usize = FETCHED + 64;
const OUTBOX: usize = BACK + BULK;
const INBOX: usize = OUTBOX + MESSAGE;
const LEN: usize = INBOX + MESSAGE;
/// Send work requests of one exchange.
pub(super) const SENDS: usize = 6;

/// One end of a connection: its id, its memory, and where the other end's is.
pub(crate) struct End<'d> {
    pub(crate) node: usize,
    pub(crate) id: CmId,
    pub(crate) memory: Buffer<'d, ModelPlatform>,
    pub(crate) remote: Option<(u64, RKey)>,
    pub(super) passive: bool,
}

fn pattern(node: usize, salt: u64, kind: u64, len: usize) -> Vec<u8> {
    let mut x = salt
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(node as u64 * 77 + kind + 1);
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes.extend_from_slice(&x.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl<'d> End<'d> {
    /// A QP for the id, and memory of which the other end may do everything.
    pub(super) fn new(
        nodes: &mut Nodes<'_, '_, 'd>,
        node: usize,
        id: CmId,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::Call { node, error };
        let cm = &mut nodes.cms[node];
        cm.create_qp(id, None, &mut init()).map_err(failed)?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let memory = cm
            .pd(id)
            .map_err(failed)?
            .alloc_buffer(LEN, access)
            .map_err(|error| failed(error.into()))?;
        Ok(Self {
            node,
            id,
            memory,
            remote: None,
            passive: false,
        })
    }

    /// The private data: the address and key of this end's memory.
    pub(super) fn card(&self) -> [u8; 12] {
        let mut card = [0; 12];
        card[..8].copy_from_slice(&self.memory.addr().to_be_bytes());
        card[8..].copy_from_slice(&self.memory.rkey().0.to_be_bytes());
        card
    }

    pub(super) fn learn(&mut self, card: &[u8]) {
        let addr = u64::from_be_bytes(card[..8].try_into().expect("private data"));
        let rkey = u32::from_be_bytes(card[8..12].try_into().expect("private data"));
        self.remote = Some((addr, RKey(rkey)));
    }

    pub(crate) fn there(&self, offset: usize) -> Remote {
        let (addr, rkey) = self.remote.expect("the other end said where its memory is");
        Remote {
            addr: addr + offset as u64,
            rkey,
        }
    }

    fn failed(&self) -> impl Fn(RdmaError) -> Failure {
        let node = self.node;
        move |error| Failure::Call { node, error }
    }

    pub(super) fn post_receive(&self, nodes: &mut Nodes<'_, '_, '_>) -> Result<(), Failure> {
        let inbox = self.memory.slice(INBOX..INBOX + MESSAGE).expect("inside");
        nodes.cms[self.node]
            .post_recv(self.id, 100, inbox)
            .map_err(self.failed())
    }

    /// Posts a work request with a piece of this end's memory.
    pub(crate) fn post(
        &self,
        nodes: &mut Nodes<'_, '_, '_>,
        wr_id: u64,
        op: SendOp<'_>,
        offset: usize,
        len: usize,
    ) -> Result<(), Failure> {
        let sge = self.memory.sge(offset, len).expect("inside");
        let endpoint = nodes.cms[self.node]
            .endpoint(self.id)
            .map_err(self.failed())?;
        endpoint
            .qp
            .send_queue()
            .post(&SendWr {
                wr_id,
                op,
                flags: SendFlags::SIGNALED,
                data: SendData::Sges(&[sge]),
            })
            .map_err(|error| self.failed()(error.into()))
    }

    pub(super) fn post_all(&self, nodes: &mut Nodes<'_, '_, '_>, salt: u64) -> Result<(), Failure> {
        let memory = &self.memory;
        let out = pattern(self.node, salt, 0, BULK);
        let message = pattern(self.node, salt, 1, MESSAGE);
        memory.copy_in(SOURCE, &out).expect("inside");
        memory.copy_in(OUTBOX, &message).expect("inside");
        memory.fill(BACK, BULK, 0xee).expect("inside");
        memory.fill(FETCHED, 24, 0xee).expect("inside");
        let counter = self.there(COUNTER);
        self.post(nodes, 0, SendOp::Write(self.there(TARGET)), SOURCE, BULK)?;
        self.post(nodes, 1, SendOp::Read(self.there(TARGET)), BACK, BULK)?;
        let add = SendOp::FetchAdd {
            remote: counter,
            add: 5,
        };
        self.post(nodes, 2, add, FETCHED, 8)?;
        self.post(nodes, 3, add, FETCHED + 8, 8)?;
        let swap = SendOp::CompareSwap {
            remote: counter,
            compare: 10,
            swap: 0,
        };
        self.post(nodes, 4, swap, FETCHED + 16, 8)?;
        self.post(nodes, 5, SendOp::Send, OUTBOX, MESSAGE)
    }

    /// Takes completions; how many. One that failed is the failure, flushed ones after the reason only.
    pub(crate) fn reap(&self, nodes: &mut Nodes<'_, '_, '_>) -> Result<usize, Failure> {
        let node = self.node;
        let endpoint = nodes.cms[node].endpoint(self.id).map_err(self.failed())?;
        let mut count = 0;
        for cq in [endpoint.send_cq, endpoint.recv_cq].into_iter().flatten() {
            while let Some(completion) = cq.poll().map_err(|error| self.failed()(error.into()))? {
                let wc = completion.to_wc();
                if wc.status != WcStatus::Success {
                    return Err(Failure::Completion {
                        node,
                        status: wc.status,
                    });
                }
                if wc.wr_id == 100 {
                    assert_eq!(wc.byte_len as usize, MESSAGE);
                }
                count += 1;
            }
        }
        Ok(count)
    }

    /// That this end's memory holds what it has to after an exchange with `other`.
    pub(super) fn check(&self, other: &End<'_>, salt: u64) {
        let (us, them) = (self.node, other.node);
        let read = |offset, len| {
            let mut bytes = vec![0; len];
            self.memory.copy_out(offset, &mut bytes).expect("inside");
            bytes
        };
        let number = |offset| u64::from_ne_bytes(read(offset, 8).try_into().expect("8 bytes"));
        assert!(
            read(TARGET, BULK) == pattern(them, salt, 0, BULK),
            "node {us}: what was written here, salt {salt}"
        );
        assert!(
            read(BACK, BULK) == pattern(us, salt, 0, BULK),
            "node {us}: what was read back, salt {salt}"
        );
        assert!(
            read(INBOX, MESSAGE) == pattern(them, salt, 1, MESSAGE),
            "node {us}: what was sent here, salt {salt}"
        );
        let fetched = [FETCHED, FETCHED + 8, FETCHED + 16].map(number);
        assert_eq!(fetched, [0, 5, 10], "node {us}: what was fetched");
        assert_eq!(number(COUNTER), 0, "node {us}: what was swapped in");
        for gap in [TARGET - 1, TARGET + BULK, SOURCE - 1] {
            assert_eq!(read(gap, 1), [0], "node {us}: beside what was written");
        }
    }
}
