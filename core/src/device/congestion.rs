//! Congestion control of RoCE (DCQCN): its parameters, where it is in force, and what it did.

use bareverbs_firmware_cmds::congestion::{
    CongestionPoint, ModifyCongParamsIn, ModifyCongStatusIn, QueryCongParamsIn,
    QueryCongStatisticsIn, QueryCongStatisticsOut, QueryCongStatusIn,
};
use bareverbs_firmware_cmds::layout::{Layout, set};
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::device::counters::Counters;
use crate::device::register::RegisterError;
use crate::platform::Platform;
use crate::types::port::LinkLayer;

impl<P: Platform> Device<'_, P> {
    fn congestion_control(
        &self,
        offered: bool,
        capability: &'static str,
    ) -> Result<(), RegisterError> {
        if !offered || self.capabilities().link_layer() != LinkLayer::Ethernet {
            return Err(RegisterError::NotOffered { capability });
        }
        Ok(())
    }

    fn may_query_congestion(&self) -> Result<(), RegisterError> {
        let offered = self.capabilities().hca.cc_query_allowed();
        self.congestion_control(offered, "cc_query_allowed")
    }

    fn may_modify_congestion(&self) -> Result<(), RegisterError> {
        let offered = self.capabilities().hca.cc_modify_allowed();
        self.congestion_control(offered, "cc_modify_allowed")
    }

    /// The parameters of a point (QUERY_CONG_PARAMS), by their names in the vendor's structures, which are those in
    /// `cc_params` of Linux's debugfs without `rp_` and `np_` for most.
    pub fn query_congestion(&self, point: CongestionPoint) -> Result<Counters, RegisterError> {
        self.may_query_congestion()?;
        let mut query = QueryCongParamsIn::new();
        query.set_cong_protocol(point.number());
        let answer = self.execute(&query)?;
        let parameters = answer.congestion_parameters();
        Ok(Counters::new(point.descriptor(), parameters))
    }

    /// Sets a parameter of a point (MODIFY_CONG_PARAMS). The priority of notifications is in force in mode 0 only: setting
    /// `cnp_802p_prio` sets `cnp_prio_mode` to 0 as well, as Linux's and FreeBSD's drivers do.
    pub fn set_congestion(
        &self,
        point: CongestionPoint,
        name: &str,
        value: u32,
    ) -> Result<(), RegisterError> {
        self.may_modify_congestion()?;
        let argument = |what| RegisterError::Argument { what };
        let mut fields = point.descriptor().fields.iter();
        let field = fields.find(|field| field.name == name);
        let field = field.ok_or(argument("a parameter that does not exist"))?;
        let mut bits = point.select().iter();
        let select = bits.find(|(parameter, _)| *parameter == name);
        let (_, select) = select.ok_or(argument("a parameter that cannot be set"))?;
        if field.width < 32 && value >> field.width != 0 {
            return Err(argument("a value that is too large for the parameter"));
        }
        let mut query = QueryCongParamsIn::new();
        query.set_cong_protocol(point.number());
        let mut parameters = *self.execute(&query)?.congestion_parameters();
        set(&mut parameters, field.offset, field.width, value.into());
        if name == "cnp_802p_prio" {
            let mode = point.descriptor().fields.iter();
            for mode in mode.filter(|field| field.name == "cnp_prio_mode") {
                set(&mut parameters, mode.offset, mode.width, 0);
            }
        }
        let mut modify = ModifyCongParamsIn::new();
        modify.set_cong_protocol(point.number());
        *modify.field_select_mut() = select.to_be_bytes();
        *modify.congestion_parameters_mut() = parameters;
        Ok(self.execute_no_output(&modify)?)
    }

    /// Returns `true` if a point is in force for a priority, from 0 to 7 (QUERY_CONG_STATUS).
    pub fn query_congestion_enabled(
        &self,
        point: CongestionPoint,
        priority: u8,
    ) -> Result<bool, RegisterError> {
        self.may_query_congestion()?;
        let mut query = QueryCongStatusIn::new();
        query
            .set_cong_protocol(point.number())
            .set_priority(priority & 7);
        Ok(self.execute(&query)?.enable())
    }

    /// Puts a point into force for a priority, from 0 to 7, or out of it (MODIFY_CONG_STATUS).
    pub fn enable_congestion(
        &self,
        point: CongestionPoint,
        priority: u8,
        enable: bool,
    ) -> Result<(), RegisterError> {
        self.may_modify_congestion()?;
        let mut modify = ModifyCongStatusIn::new();
        modify
            .set_cong_protocol(point.number())
            .set_priority(priority & 7)
            .set_enable(enable);
        Ok(self.execute_no_output(&modify)?)
    }

    /// The counts of congestion control (QUERY_CONG_STATISTICS): notifications that arrived and were sent, marked packets, flows
    /// that are slowed down. They are read, never cleared.
    pub fn query_congestion_statistics(&self) -> Result<Counters, RegisterError> {
        self.may_query_congestion()?;
        let answer = self.execute(&QueryCongStatisticsIn::new())?;
        let of = QueryCongStatisticsOut::DESCRIPTOR;
        Ok(Counters::new(of, answer.as_bytes()))
    }
}
