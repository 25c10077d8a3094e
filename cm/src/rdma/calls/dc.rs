//! Connections whose ends are dynamic: the CM carries the numbers of targets, and the application makes initiators and
//! targets itself, as with librdmacm, where they are QPs that are not the id's.

use bareverbs_core::ah::AhAttr;
use bareverbs_core::cq::Cq;
use bareverbs_core::mr::Access;
use bareverbs_core::qp::{DctInitAttr, QpAttr};
use bareverbs_core::srq::Srq;
use bareverbs_core::{Mtu, Platform};

use crate::rdma::manager::RdmaCm;
use crate::rdma::resolver::Resolver;
use crate::rdma::types::error::RdmaError;
use crate::rdma::types::{CmId, IdState, IdType};

/// The path of an id, for initiators and targets of dynamic connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcPath {
    /// To the other end: for the address handle of each work request ([`DcTarget`](bareverbs_core::qp::DcTarget)).
    pub ah_attr: AhAttr,
    /// Path MTU of both ends.
    pub path_mtu: Mtu,
    /// Index of the partition.
    pub pkey_index: u16,
    /// Exponent of the ACK timeout.
    pub timeout: u8,
    /// Retries of requests that are not acknowledged.
    pub retry_cnt: u8,
    /// Retries while the target's SRQ is empty.
    pub rnr_retry: u8,
    /// The target's RNR NAK timer.
    pub min_rnr_timer: u8,
}

impl DcPath {
    /// Attributes to bring an initiator up with ([`Qp::activate`](bareverbs_core::qp::Qp::activate)); it may have
    /// `max_rd_atomic` READs and atomics outstanding.
    pub const fn initiator(&self, max_rd_atomic: u8) -> QpAttr {
        QpAttr {
            ah_attr: self.ah_attr,
            path_mtu: self.path_mtu,
            pkey_index: self.pkey_index,
            port_num: 1,
            timeout: self.timeout,
            retry_cnt: self.retry_cnt,
            rnr_retry: self.rnr_retry,
            max_rd_atomic,
            ..QpAttr::DEFAULT
        }
    }

    /// The attributes of a target at this end ([`Pd::create_dct`](bareverbs_core::pd::Pd::create_dct)).
    pub fn target<'a, 'd, P: Platform>(
        &self,
        cq: &'a Cq<'d, P>,
        srq: &'a Srq<'d, P>,
        access_key: u64,
        access: Access,
    ) -> DctInitAttr<'a, 'd, P> {
        DctInitAttr {
            cq,
            srq,
            access_key,
            access,
            path_mtu: self.path_mtu,
            // An index that no table has is refused by the device.
            sgid_index: u8::try_from(self.ah_attr.sgid_index).unwrap_or(u8::MAX),
            hop_limit: self.ah_attr.hop_limit,
            traffic_class: self.ah_attr.traffic_class,
            flow_label: self.ah_attr.flow_label,
            sl: self.ah_attr.sl,
            min_rnr_timer: self.min_rnr_timer,
            pkey_index: self.pkey_index,
        }
    }
}

impl<P: Platform, R: Resolver> RdmaCm<'_, '_, P, R> {
    /// The path of an id without a QP, for dynamic connections; from the resolved route or the request on.
    ///
    /// librdmacm has no more of them than QPs that are not the id's. A target's number goes as
    /// [`qp_num`](crate::rdma::ConnParam::qp_num) of [`connect`](RdmaCm::connect) and [`accept`](RdmaCm::accept), and comes
    /// as that of `ConnectRequest` and `ConnectResponse`; its access key goes in the private data, in whatever form both
    /// applications know. After [`establish`](RdmaCm::establish) each end's initiator sends to the other end's target.
    /// Nothing is moved by [`disconnect`](RdmaCm::disconnect): the target stays open for those that know its key.
    ///
    /// A connection is known by the number that it came with. A target that another connection of the same two hosts has
    /// already is refused as stale (REJ 10), and both are over, as under Linux: each connection needs a target of its own.
    pub fn dc_path(&self, id: CmId) -> Result<DcPath, RdmaError> {
        let index = self.ids.index(id)?;
        let slot = &self.ids[index];
        if slot.id_type != IdType::Rc {
            return Err(RdmaError::WrongType {
                call: "dc_path",
                id_type: slot.id_type,
            });
        }
        if slot.objects.has_qp() {
            return Err(RdmaError::QpExists);
        }
        let asked = match slot.conn.id {
            Some(connection) => Some(self.engine.qp_params(connection)?),
            None if slot.state == IdState::RouteResolved => None,
            None => {
                return Err(RdmaError::WrongState {
                    call: "dc_path",
                    state: slot.state,
                });
            }
        };
        let route = &slot.route;
        let (address, rate, mtu) = match &asked {
            Some(params) => (&params.address, params.rate, params.path_mtu),
            None => (&route.address, route.rate, route.path_mtu),
        };
        // Without a request, as the requests of this id will say.
        let timeout = asked.map_or(route.packet_life_time.saturating_add(1).min(31), |params| {
            params.ack_timeout
        });
        Ok(DcPath {
            ah_attr: self.router.ah_attr_at(address, rate),
            path_mtu: Mtu::from_number(mtu).unwrap_or(Mtu::B256),
            pkey_index: route.pkey_index,
            timeout: slot.options.ack_timeout.unwrap_or(timeout),
            retry_cnt: asked.map_or(7, |params| params.retry_count),
            // A target's SRQ is for everybody, and may be empty for long.
            rnr_retry: 7,
            min_rnr_timer: slot.options.min_rnr_timer,
        })
    }
}
