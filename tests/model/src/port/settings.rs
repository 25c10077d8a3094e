//! Settings of the port that drivers change: flow control, trust, traffic classes, error correction, congestion control. Each
//! function has its own; on a card the functions of a port share them. They are the port's, so that a function's reset leaves
//! them: Linux' driver asks for trust and priorities when it starts, as another may have set them (`mlx5e_trust_initialize`).

use bareverbs_firmware_cmds::congestion::{
    CongControlRRoceEcnNp, CongControlRRoceEcnRp, CongestionPoint,
};

/// Priorities of a tag.
pub(crate) const PRIORITIES: usize = 8;
pub(crate) const DSCPS: usize = 64;
pub(crate) const TRAFFIC_CLASSES: usize = 8;
/// Speeds of an InfiniBand port, as PTYS numbers them: SDR, DDR, QDR, FDR10, FDR, EDR.
pub(crate) const IB_SPEEDS: u16 = 0x3f;

/// Trust state: the tag's priority.
pub(crate) const TRUST_PCP: u8 = 1;
/// Trust state: the IP header's DSCP.
pub(crate) const TRUST_DSCP: u8 = 2;

/// Pauses in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Of the whole port.
    pub port: bool,
    /// Of priorities.
    pub priorities: u8,
}

/// A traffic class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficClass {
    /// Its group, of which the higher goes first.
    pub group: u8,
    /// Percent of the group's.
    pub bandwidth: u8,
    /// Units and value of the rate limit.
    pub limit: (u8, u16),
}

/// Settings of a port.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Those of [`IB_SPEEDS`] that the driver lets the port have.
    pub(crate) ib_speeds: u16,
    /// When sending, and when receiving.
    pub pauses: [Pauses; 2],
    /// Watermarks of a stalled device: minor, critical.
    pub(crate) watermarks: [u16; 2],
    /// Source of frames' priorities: 1 the tag, 2 the IP header's DSCP.
    pub trust: u8,
    /// Priority of each DSCP.
    pub dscp: [u8; DSCPS],
    /// Traffic class of each priority.
    pub classes: [u8; PRIORITIES],
    /// By traffic class.
    pub bandwidth: [TrafficClass; TRAFFIC_CLASSES],
    /// The error correction that is asked for at 100 Gb/s, as a mask of PPLM; 0 leaves it to the port.
    pub fec: u8,
    /// Parameters of congestion control where frames are sent.
    pub reaction: CongControlRRoceEcnRp,
    /// And where they are received.
    pub notification: CongControlRRoceEcnNp,
    /// By [`CongestionPoint`] and priority: whether it is in force.
    pub(crate) congestion: [[bool; PRIORITIES]; 2],
}

impl Settings {
    /// Returns the settings that the card starts with. The parameters of congestion control are those that the vendor's
    /// documentation of DCQCN has as defaults; the others are assumed.
    pub(crate) fn new() -> Self {
        let mut reaction = CongControlRRoceEcnRp::ZERO;
        reaction
            .set_clamp_tgt_rate_after_time_inc(true)
            .set_rpg_time_reset(300)
            .set_rpg_byte_reset(32_767)
            .set_rpg_threshold(1)
            .set_rpg_ai_rate(5)
            .set_rpg_hai_rate(50)
            .set_rpg_gd(11)
            .set_rpg_min_dec_fac(50)
            .set_rpg_min_rate(1)
            .set_dce_tcp_g(1019)
            .set_dce_tcp_rtt(1)
            .set_rate_reduce_monitor_period(4)
            .set_initial_alpha_value(1023);
        let mut notification = CongControlRRoceEcnNp::ZERO;
        notification
            .set_min_time_between_cnps(4)
            .set_cnp_dscp(48)
            .set_cnp_802p_prio(6);
        let whole = TrafficClass {
            bandwidth: 100,
            ..TrafficClass::default()
        };
        Self {
            ib_speeds: IB_SPEEDS,
            pauses: Default::default(),
            watermarks: [0; 2],
            trust: TRUST_PCP,
            dscp: core::array::from_fn(|dscp| (dscp / PRIORITIES) as u8),
            classes: core::array::from_fn(|priority| priority as u8),
            bandwidth: core::array::from_fn(|class| TrafficClass {
                group: class as u8,
                ..whole
            }),
            fec: 0,
            reaction,
            notification,
            congestion: [[true; PRIORITIES]; 2],
        }
    }

    /// The parameters of a point.
    pub(crate) fn parameters(&mut self, point: CongestionPoint) -> &mut [u8; 0x100] {
        match point {
            CongestionPoint::Reaction => &mut self.reaction.0,
            CongestionPoint::Notification => &mut self.notification.0,
        }
    }
}
