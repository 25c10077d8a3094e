//! 100,000 RC QPs from their creation to RTS, and their destruction: what the driver leaves of the firmware's time, in virtual
//! time.
//!
//! No connection manager and no peer: each QP is connected to itself, so that nothing but commands takes time.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::time::Duration;

use bareverbs_core::{
    AhAttr, CommandFailure, Config, Cq, CqInit, CqSlot, CreatingQp, DestroyingQp, Device,
    DeviceSlot, GidEntry, ModifyError, PageChunk, Pd, Platform, Qp, QpAttr, QpAttrMask, QpInitAttr,
    QpSlot, QpState, Rc, Storage,
};
use bareverbs_in_process::{Builder, ModelPlatform};

/// Number of QPs.
pub(crate) const COUNT: usize = 100_000;
/// Latency of a command.
pub(crate) const COMMAND: Duration = Duration::from_micros(20);
/// Commands that the queue takes at once; one more slot is MANAGE_PAGES's.
pub(crate) const DEPTH: u64 = 31;
/// QPs that something is under way for: one more than the queue has slots, so that none is left empty.
const UNDER_WAY: usize = DEPTH as usize + 1;
/// Work requests of each queue.
const QUEUE: u32 = 16;
/// Commands of each QP: CREATE_QP, RST2INIT_QP, INIT2RTR_QP and RTR2RTS_QP; 2RST_QP and DESTROY_QP.
const COMMANDS: [u64; 2] = [4, 2];

/// The measured times: all QPs to RTS, and all of them destroyed.
pub(crate) struct Outcome {
    pub(crate) time: [Duration; 2],
    commands: [u64; 2],
}

impl Outcome {
    /// The time of as many commands if no slot of the queue is ever empty.
    pub(crate) fn ideal() -> [Duration; 2] {
        COMMANDS.map(|commands| {
            let rounds = (commands * COUNT as u64).div_ceil(DEPTH);
            COMMAND * rounds as u32
        })
    }

    /// Commands beside those that QPs take: MANAGE_PAGES, as their contexts are in pages of the host's.
    pub(crate) fn others(&self, side: usize) -> i64 {
        self.commands[side] as i64 - (COMMANDS[side] * COUNT as u64) as i64
    }
}

type Model<'d> = Qp<'d, ModelPlatform, Rc>;

/// A QP on its way up.
enum Coming<'d> {
    Creating(CreatingQp<'d, ModelPlatform, Rc>),
    /// In a state, and `true` on the way to the next one.
    In(Model<'d>, bool),
}

/// The next state, and what that transition takes.
fn next(state: QpState) -> Option<(QpState, QpAttrMask)> {
    let path = QpAttrMask::AV
        | QpAttrMask::PATH_MTU
        | QpAttrMask::DEST_QPN
        | QpAttrMask::RQ_PSN
        | QpAttrMask::MAX_DEST_RD_ATOMIC
        | QpAttrMask::MIN_RNR_TIMER;
    let sending = QpAttrMask::SQ_PSN
        | QpAttrMask::MAX_QP_RD_ATOMIC
        | QpAttrMask::RETRY_CNT
        | QpAttrMask::RNR_RETRY
        | QpAttrMask::TIMEOUT;
    let port = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
    Some(match state {
        QpState::Reset => (QpState::Init, port),
        QpState::Init => (QpState::Rtr, path),
        QpState::Rtr => (QpState::Rts, sending),
        _ => return None,
    })
}

/// Moves a QP on as far as it goes without waiting; `Break` with the QP once it is in RTS.
fn advance<'d>(coming: Coming<'d>, path: &AhAttr) -> ControlFlow<Model<'d>, Coming<'d>> {
    let (mut qp, mut moving) = match coming {
        Coming::Creating(mut creating) => match creating.try_finish() {
            None => return ControlFlow::Continue(Coming::Creating(creating)),
            Some(made) => (made.expect("QP"), false),
        },
        Coming::In(qp, moving) => (qp, moving),
    };
    if moving {
        match qp.try_finish_modify() {
            None => return ControlFlow::Continue(Coming::In(qp, true)),
            Some(moved) => moved.expect("transition"),
        }
        moving = false;
    }
    let Some((to, mask)) = next(qp.state()) else {
        return ControlFlow::Break(qp);
    };
    let attr = QpAttr {
        qp_state: to,
        dest_qp_num: qp.qpn(),
        ah_attr: *path,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::DEFAULT
    };
    match qp.start_modify(&attr, mask | QpAttrMask::STATE) {
        Ok(()) => moving = true,
        Err(ModifyError::Command(error))
            if matches!(error.failure, CommandFailure::QueueFull { .. }) => {}
        Err(error) => panic!("{to}: {error}"),
    }
    ControlFlow::Continue(Coming::In(qp, moving))
}

/// Lets the device go on, and time pass if it has nothing to say.
fn turn(device: &Device<'_, ModelPlatform>, any: bool) {
    if !any {
        device.platform().relax();
    }
    device.poll().expect("poll");
}

fn bring_up<'d>(
    pd: &Pd<'d, ModelPlatform>,
    cq: &Cq<'d, ModelPlatform>,
    path: &AhAttr,
) -> Vec<Model<'d>> {
    let device = pd.device();
    let mut ready = Vec::with_capacity(COUNT);
    let mut coming = Vec::with_capacity(UNDER_WAY);
    let mut begun = 0;
    while ready.len() < COUNT {
        let before = ready.len();
        for one in std::mem::take(&mut coming) {
            match advance(one, path) {
                ControlFlow::Continue(one) => coming.push(one),
                ControlFlow::Break(qp) => ready.push(qp),
            }
        }
        while coming.len() < UNDER_WAY && begun < COUNT {
            let mut init = QpInitAttr::new(cq, QUEUE);
            coming.push(Coming::Creating(pd.start_create_qp(&mut init).expect("QP")));
            begun += 1;
        }
        turn(device, ready.len() > before);
    }
    ready
}

fn destroy(device: &Device<'_, ModelPlatform>, mut qps: Vec<Model<'_>>) {
    let mut going: Vec<DestroyingQp<'_, _, _>> = Vec::with_capacity(UNDER_WAY);
    while !(qps.is_empty() && going.is_empty()) {
        let before = going.len();
        going.retain_mut(|qp| qp.try_finish().map(|gone| gone.expect("destroy")).is_none());
        let any = going.len() < before;
        while going.len() < UNDER_WAY
            && let Some(qp) = qps.pop()
        {
            going.push(qp.start_destroy().expect("destroy"));
        }
        turn(device, any);
    }
}

/// Makes them and destroys them.
pub(crate) fn run() -> Outcome {
    let card = connectx_model::Config {
        command_time: COMMAND,
        ..connectx_model::Config::new(1)
    };
    let world = Builder::new().function(card).stepped();
    let mut slot = Box::new(DeviceSlot::new());
    let mut qps: Vec<QpSlot> = (0..COUNT + 64).map(|_| QpSlot::new()).collect();
    let mut cqs: Vec<CqSlot> = (0..2).map(|_| CqSlot::new()).collect();
    let mut chunks: Vec<PageChunk> = (0..4096).map(|_| PageChunk::new()).collect();
    let storage = Storage::new(&mut slot, &mut qps, &mut cqs, &mut [], &mut chunks);
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let device = world.open(0, Config::DEFAULT, storage, &[address]);
    let pd = device.alloc_pd().expect("PD");
    let cq = device.create_cq(CqInit::new(255)).expect("CQ");
    let own: GidEntry = device.port_gid(0).expect("GID");
    let path = AhAttr {
        dgid: own.gid,
        dmac: own.mac,
        hop_limit: 64,
        ..AhAttr::default()
    };

    let start = (world.now(), device.commands_executed());
    let ready = bring_up(&pd, &cq, &path);
    assert!(ready.iter().all(|qp| qp.state() == QpState::Rts));
    let up = (world.now(), device.commands_executed());
    destroy(&device, ready);
    let gone = (world.now(), device.commands_executed());
    Outcome {
        time: [up.0 - start.0, gone.0 - up.0],
        commands: [up.1 - start.1, gone.1 - up.1],
    }
}
