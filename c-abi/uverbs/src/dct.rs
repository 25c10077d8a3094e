//! Targets of dynamic connections, which are QPs for the program: as `mlx5_ib` makes them (`create_dct`, `mlx5_ib_modify_dct`). The
//! firmware has one from its last transition on.

use std::thread;
use std::time::Duration;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::firmware_cmds::dct::{
    CreateDctIn, DestroyDctIn, DrainDctIn, QueryDctIn,
};
use bareverbs_node::verbs::firmware_cmds::values::{AtomicMode, DctState};
use bareverbs_node::verbs::{Access, Device, QpAttrMask, QpState, RoceVersion};

use crate::abi::{Mlx5CreateQpIn, ModifyQpIn};
use crate::attrs::{Result, refused};
use crate::queues::Numbers;
use crate::transition;

/// Looks at a target that drains, and the time between two.
const LOOKS: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Dct<'d> {
    device: &'d Device<'d, P>,
    command: CreateDctIn,
    state: QpState,
    /// From RTR on.
    pub(crate) number: Option<u32>,
}

impl<'d> Dct<'d> {
    pub(crate) fn new(
        device: &'d Device<'d, P>,
        numbers: Numbers,
        provided: &Mlx5CreateQpIn,
    ) -> Result<Self> {
        if !device.capabilities().hca.dct() {
            return Err(libc::EOPNOTSUPP);
        }
        let mut command = CreateDctIn::new();
        command.set_uid(numbers.uid);
        command
            .dct_context_entry_mut()
            .set_pd(numbers.pdn)
            .set_srqn_xrqn(numbers.srqn.ok_or(libc::EINVAL)?)
            .set_cqn(numbers.cqns[1])
            // The place of the send ring has the access key.
            .set_dc_access_key(provided.sq_buf_addr)
            .set_user_index(provided.uidx & 0xff_ffff);
        Ok(Self {
            device,
            command,
            state: QpState::Reset,
            number: None,
        })
    }

    pub(crate) fn modify(&mut self, modify: &ModifyQpIn) -> Result<()> {
        let mask = transition::mask(modify)?;
        let attr = transition::attributes(modify, mask, [0; 6])?;
        let context = self.command.dct_context_entry_mut();
        match (self.state, attr.qp_state) {
            _ if !mask.contains(QpAttrMask::STATE) => return Err(libc::EINVAL),
            (QpState::Reset, QpState::Init) => {
                let access = QpAttrMask::ACCESS_FLAGS;
                let needed = access | QpAttrMask::PKEY_INDEX | QpAttrMask::PORT;
                if mask != needed | QpAttrMask::STATE || attr.port_num != 1 {
                    return Err(libc::EINVAL);
                }
                let asked = attr.qp_access_flags;
                let atomics = asked.contains(Access::REMOTE_ATOMIC);
                if atomics && !self.device.capabilities().has_atomics() {
                    return Err(libc::EOPNOTSUPP);
                }
                context
                    .set_rre(asked.contains(Access::REMOTE_READ))
                    .set_rwe(asked.contains(Access::REMOTE_WRITE))
                    .set_rae(atomics)
                    .set_pkey_index(attr.pkey_index)
                    .set_port(attr.port_num);
                if atomics {
                    context.set_atomic_mode(AtomicMode::IbSpec.number());
                }
            }
            (QpState::Init, QpState::Rtr) => {
                let needed = QpAttrMask::MIN_RNR_TIMER | QpAttrMask::AV | QpAttrMask::PATH_MTU;
                if mask != needed | QpAttrMask::STATE {
                    return Err(libc::EINVAL);
                }
                let ah = &attr.ah_attr;
                let index = ah.sgid_index;
                let source = self.device.port_gid(index).ok_or(libc::EINVAL)?;
                context
                    .set_min_rnr_nak(attr.min_rnr_timer)
                    .set_tclass(ah.traffic_class)
                    .set_flow_label(ah.flow_label)
                    .set_mtu(attr.path_mtu.number())
                    .set_my_addr_index(index as u8)
                    .set_hop_limit(ah.hop_limit)
                    .set_eth_prio(ah.sl & 7);
                if source.version == RoceVersion::V2 {
                    context.set_dscp(ah.traffic_class >> 2);
                }
                let created = self.device.execute(&self.command).map_err(refused)?;
                self.number = Some(created.dctn());
            }
            _ => return Err(libc::EINVAL),
        }
        self.state = attr.qp_state;
        Ok(())
    }

    pub(crate) fn destroy(&self) -> Result<()> {
        let Some(number) = self.number else {
            return Ok(());
        };
        drain(self.device, number)?;
        let mut destroy = DestroyDctIn::new();
        destroy.set_dctn(number);
        self.device.execute(&destroy).map(drop).map_err(refused)
    }
}

/// Lets a target take nothing more, and waits until it has ended what it had: only then it can be destroyed.
pub(crate) fn drain(device: &Device<'_, P>, number: u32) -> Result<()> {
    let mut drain = DrainDctIn::new();
    drain.set_dctn(number);
    // One that drains already is not told again.
    let _ = device.execute(&drain).map_err(refused);
    let mut query = QueryDctIn::new();
    query.set_dctn(number);
    for _ in 0..LOOKS {
        let found = device.execute(&query).map_err(refused)?;
        if found.dct_context_entry().state() == DctState::Drained.number() {
            break;
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
