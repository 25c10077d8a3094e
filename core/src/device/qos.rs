//! Flow control, trust, priorities and traffic classes of the port. All of it is read, and changed only by the functions that
//! say `set`; the port's functions share it.

use bareverbs_firmware_cmds::register::{
    EtsTcnConfigReg, PfccReg, PplmReg, QPDPM_ENABLE, QPDPM_PRIORITY, QetcReg, QpdpmReg, QptsReg,
    QtctReg,
};
use bareverbs_firmware_cmds::values::RegisterId;
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::register::RegisterError;
use crate::platform::Platform;
use crate::types::port::PORT;

/// Priorities, and as many traffic classes.
pub const PRIORITIES: usize = 8;
/// Values of the DSCP.
pub const DSCPS: usize = 64;

/// The pauses that are sent and obeyed (IEEE 802.3 Annex 31B; of priorities, IEEE 802.1Qbb).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowControl {
    /// The port asks its peer to pause.
    pub send_pauses: bool,
    /// The port pauses when its peer asks.
    pub obey_pauses: bool,
    /// Priorities, one bit each, for which it asks its peer to pause.
    pub send_pfc: u8,
    /// Priorities which pause when its peer asks.
    pub obey_pfc: u8,
}

/// The source of a received packet's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// The VLAN tag (PCP).
    Pcp,
    /// The IP header (DSCP).
    Dscp,
    /// A number that no document names.
    Unknown(u8),
}

/// The transmission selection of a traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficClass {
    /// Its group; groups of higher numbers go first.
    pub group: u8,
    /// Its share of what the group has, in percent.
    pub bandwidth: u8,
    /// Its limit in Mb/s, if it has one.
    pub limit_mbps: Option<u32>,
}

/// Forward error correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fec {
    /// None.
    Off,
    /// Firecode, BASE-R.
    Firecode,
    /// Reed-Solomon, RS(528,514).
    Rs528,
    /// Reed-Solomon, RS(544,514).
    Rs544,
    /// Reed-Solomon of low latency, RS(272,257).
    LowLatency,
    /// A bit without a name here, or several at once.
    Unknown(u32),
}

impl Fec {
    const fn from_mask(mask: u32) -> Option<Self> {
        Some(match mask {
            0 => return None,
            0x1 => Self::Off,
            0x2 => Self::Firecode,
            0x4 => Self::Rs528,
            0x80 => Self::Rs544,
            0x200 => Self::LowLatency,
            other => Self::Unknown(other),
        })
    }
}

impl<P: Platform> Device<'_, P> {
    fn pfcc(&self) -> Result<PfccReg, RegisterError> {
        let mut pfcc = PfccReg::ZERO;
        pfcc.set_local_port(PORT);
        self.read_offered(RegisterId::Pfcc, pfcc, PfccReg::as_mut_bytes)
    }

    /// Asks for the port's pauses (PFCC).
    pub fn query_flow_control(&self) -> Result<FlowControl, RegisterError> {
        let pfcc = self.pfcc()?;
        Ok(FlowControl {
            send_pauses: pfcc.pptx(),
            obey_pauses: pfcc.pprx(),
            send_pfc: pfcc.pfctx(),
            obey_pfc: pfcc.pfcrx(),
        })
    }

    /// Sets the port's pauses, all of them. The device refuses those of the whole port beside those of priorities, or prefers
    /// one kind, so here it is an error. A virtual function is refused.
    ///
    /// For a change of the priorities Linux takes the link down and up again ([`set_link`](Self::set_link)), which this does
    /// not do.
    pub fn set_flow_control(&self, wanted: FlowControl) -> Result<(), RegisterError> {
        let port = wanted.send_pauses || wanted.obey_pauses;
        if port && (wanted.send_pfc | wanted.obey_pfc) != 0 {
            return Err(RegisterError::Argument {
                what: "pauses of the port exclude those of priorities",
            });
        }
        let mut pfcc = PfccReg::ZERO;
        pfcc.set_local_port(PORT)
            .set_prio_mask_tx(u8::MAX)
            .set_prio_mask_rx(u8::MAX)
            .set_pptx(wanted.send_pauses)
            .set_pprx(wanted.obey_pauses)
            .set_pfctx(wanted.send_pfc)
            .set_pfcrx(wanted.obey_pfc);
        Ok(self.write_register(RegisterId::Pfcc, &pfcc.0)?)
    }

    /// Asks what says a packet's priority (QPTS).
    pub fn query_trust(&self) -> Result<Trust, RegisterError> {
        let mut qpts = QptsReg::ZERO;
        qpts.set_local_port(PORT);
        let qpts = self.read_offered(RegisterId::Qpts, qpts, QptsReg::as_mut_bytes)?;
        Ok(match qpts.trust_state() {
            1 => Trust::Pcp,
            2 => Trust::Dscp,
            other => Trust::Unknown(other),
        })
    }

    /// Sets what says a packet's priority.
    pub fn set_trust(&self, trust: Trust) -> Result<(), RegisterError> {
        let state = match trust {
            Trust::Pcp => 1,
            Trust::Dscp => 2,
            Trust::Unknown(_) => {
                return Err(RegisterError::Argument {
                    what: "a trust state without a name",
                });
            }
        };
        self.offers(RegisterId::Qpts)?;
        let mut qpts = QptsReg::ZERO;
        qpts.set_local_port(PORT).set_trust_state(state);
        Ok(self.write_register(RegisterId::Qpts, &qpts.0)?)
    }

    /// Asks for the priority of each DSCP (QPDPM), which counts while the port trusts it.
    pub fn query_dscp_priorities(&self) -> Result<[u8; DSCPS], RegisterError> {
        let mut qpdpm = QpdpmReg::ZERO;
        qpdpm.set_local_port(PORT);
        let qpdpm = self.read_offered(RegisterId::Qpdpm, qpdpm, QpdpmReg::as_mut_bytes)?;
        let mut priorities = [0; DSCPS];
        let (entries, _) = qpdpm.dscp().as_chunks();
        for (priority, entry) in priorities.iter_mut().zip(entries) {
            *priority = (u16::from_be_bytes(*entry) & QPDPM_PRIORITY) as u8;
        }
        Ok(priorities)
    }

    /// Sets the priority of a DSCP, and leaves the others alone.
    pub fn set_dscp_priority(&self, dscp: u8, priority: u8) -> Result<(), RegisterError> {
        if usize::from(priority) >= PRIORITIES {
            return Err(RegisterError::Argument {
                what: "a priority above 7",
            });
        }
        let mut qpdpm = QpdpmReg::ZERO;
        qpdpm.set_local_port(PORT);
        // The others are written as they are, as Linux does (`mlx5_set_dscp2prio`): no document says that entries without
        // the bit are left alone.
        let mut qpdpm = self.read_offered(RegisterId::Qpdpm, qpdpm, QpdpmReg::as_mut_bytes)?;
        qpdpm.set_local_port(PORT);
        let (entries, _) = qpdpm.dscp_mut().as_chunks_mut();
        let entry = entries.get_mut(usize::from(dscp));
        *entry.ok_or(RegisterError::Argument {
            what: "a DSCP above 63",
        })? = (QPDPM_ENABLE | u16::from(priority)).to_be_bytes();
        Ok(self.write_register(RegisterId::Qpdpm, &qpdpm.0)?)
    }

    /// Asks for the traffic class of each priority (QTCT).
    pub fn query_traffic_classes(&self) -> Result<[u8; PRIORITIES], RegisterError> {
        let mut classes = [0; PRIORITIES];
        for (priority, class) in (0..).zip(&mut classes) {
            let mut qtct = QtctReg::ZERO;
            qtct.set_port_number(PORT).set_prio(priority);
            let qtct = self.read_offered(RegisterId::Qtct, qtct, QtctReg::as_mut_bytes)?;
            *class = qtct.tclass();
        }
        Ok(classes)
    }

    /// Sets the traffic class of a priority.
    pub fn set_traffic_class(&self, priority: u8, class: u8) -> Result<(), RegisterError> {
        if usize::from(priority.max(class)) >= PRIORITIES {
            return Err(RegisterError::Argument {
                what: "a priority or a traffic class above 7",
            });
        }
        self.offers(RegisterId::Qtct)?;
        let mut qtct = QtctReg::ZERO;
        qtct.set_port_number(PORT)
            .set_prio(priority)
            .set_tclass(class);
        Ok(self.write_register(RegisterId::Qtct, &qtct.0)?)
    }

    /// Asks for the bandwidth of each traffic class (QETCR).
    pub fn query_bandwidth(&self) -> Result<[TrafficClass; PRIORITIES], RegisterError> {
        let mut qetc = QetcReg::ZERO;
        qetc.set_port_number(PORT);
        let qetc = self.read_offered(RegisterId::Qetcr, qetc, QetcReg::as_mut_bytes)?;
        let mut classes = [TrafficClass::default(); PRIORITIES];
        let (entries, _) = qetc
            .tc_configuration()
            .as_chunks::<{ EtsTcnConfigReg::SIZE }>();
        for (class, entry) in classes.iter_mut().zip(entries) {
            let entry = EtsTcnConfigReg(*entry);
            let value = u32::from(entry.max_bw_value());
            *class = TrafficClass {
                group: entry.group(),
                bandwidth: entry.bw_allocation(),
                // Units: 3 are 100 Mb/s, 4 are 1 Gb/s (`MLX5_100_MBPS_UNIT`, `MLX5_GBPS_UNIT`).
                limit_mbps: match entry.max_bw_units() {
                    3 => Some(value * 100),
                    4 => Some(value * 1000),
                    _ => None,
                },
            };
        }
        Ok(classes)
    }

    /// Asks which forward error correction is in use (PPLM); `None` without a link.
    pub fn query_fec(&self) -> Result<Option<Fec>, RegisterError> {
        let mut pplm = PplmReg::ZERO;
        pplm.set_local_port(PORT);
        let pplm = self.read_offered(RegisterId::Pplm, pplm, PplmReg::as_mut_bytes)?;
        Ok(Fec::from_mask(pplm.fec_mode_active()))
    }
}
