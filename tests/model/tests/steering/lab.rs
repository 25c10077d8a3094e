//! A card with TIRs, and the commands of flow steering in short.

use crate::common::{Failure, Node, page_list};
use bareverbs_firmware_cmds::domain::AllocTransportDomainIn;
use bareverbs_firmware_cmds::flow::*;
use bareverbs_firmware_cmds::rq::CreateRqIn;
use bareverbs_firmware_cmds::tir::CreateTirIn;
use bareverbs_firmware_cmds::vport::TrafficCounter;
use connectx_model::{Config, Syndrome};
use zerocopy::FromBytes;

pub(crate) const ALLOW: u16 = 1;
pub(crate) const DROP: u16 = 2;
pub(crate) const FORWARD: u16 = 4;
pub(crate) const COUNT: u16 = 8;

pub(crate) const MISS_FORWARD: u8 = 1;

/// Destination of an entry: type and number.
pub(crate) fn to_table(number: u32) -> DestFormat {
    let mut to = DestFormat::ZERO;
    to.set_destination_type(1).set_destination_id(number);
    to
}

pub(crate) fn to_tir(number: u32) -> DestFormat {
    let mut to = DestFormat::ZERO;
    to.set_destination_type(2).set_destination_id(number);
    to
}

pub(crate) fn refused(syndrome: Syndrome) -> Failure {
    Failure::Status(syndrome.status() as u8, syndrome.code())
}

/// A card that has all of flow steering.
pub(crate) fn config() -> Config {
    let mut config = Config::new(1);
    for caps in [&mut config.general, &mut config.general_max] {
        caps.set_max_flow_counter_15_0(0x1000)
            .set_flow_counter_bulk_alloc(0x0f)
            .set_log_max_flow_counter_bulk(8);
    }
    config
        .flow_table
        .set_nic_rx_multi_path_tirs(true)
        .set_nic_rx_multi_path_tirs_fts(true);
    config
        .flow_table
        .flow_table_properties_nic_receive_mut()
        .set_flow_counter(true)
        .set_flow_modify_en(true)
        .set_max_ft_level(64)
        .set_log_max_destination(2)
        .set_log_max_flow_counter(1);
    config
}

/// The same with four lists of four changes to headers.
pub(crate) fn rewriting() -> Config {
    let mut config = config();
    config
        .flow_table
        .flow_table_properties_nic_receive_mut()
        .set_log_max_modify_header_context(2)
        .set_max_modify_header_actions(4);
    config
}

pub(crate) struct Lab {
    pub(crate) node: Node,
    pub(crate) rq: u32,
    domain: u32,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut node = Node::new(config);
        node.initialize();
        node.give(64);
        let pd = node.alloc_pd();
        let domain = node.command(&AllocTransportDomainIn::new()).unwrap();
        let eq = node.create_eq(4, 0, 0);
        let cq = node.create_cq(4, eq);
        let mut create = CreateRqIn::new();
        let ring = node.host.alloc(4096, 4096);
        let record = node.host.alloc(8, 64);
        create.ctx_mut().set_cqn(cq.number);
        create
            .ctx_mut()
            .wq_mut()
            .set_wq_type(1)
            .set_pd(pd)
            .set_dbr_addr(record)
            .set_log_wq_stride(4)
            .set_log_wq_sz(4);
        let (output, _) = node
            .command_with(&create, &page_list(ring, 4096), 0)
            .unwrap();
        Self {
            node,
            rq: output.rqn(),
            domain: domain.transport_domain(),
        }
    }

    pub(crate) fn tir(&mut self) -> u32 {
        let mut create = CreateTirIn::new();
        create
            .ctx_mut()
            .set_disp_type(0)
            .set_inline_rqn(self.rq)
            .set_transport_domain(self.domain);
        self.node.command(&create).unwrap().tirn()
    }

    /// A table; `miss` 0 is the default.
    pub(crate) fn table(&mut self, level: u8, log_size: u8, miss: u32) -> u32 {
        self.try_table(level, log_size, miss).unwrap()
    }

    pub(crate) fn try_table(&mut self, level: u8, log_size: u8, miss: u32) -> Result<u32, Failure> {
        let mut create = CreateFlowTableIn::new();
        create
            .flow_table_context_mut()
            .set_level(level)
            .set_log_size(log_size);
        if miss != 0 {
            create
                .flow_table_context_mut()
                .set_table_miss_action(MISS_FORWARD)
                .set_table_miss_id(miss);
        }
        self.node.command(&create).map(|output| output.table_id())
    }

    pub(crate) fn destroy_table(&mut self, table: u32) -> Result<(), Failure> {
        let mut destroy = DestroyFlowTableIn::new();
        destroy.set_table_id(table);
        self.node.command(&destroy).map(drop)
    }

    pub(crate) fn set_root(&mut self, table: u32) -> Result<(), Failure> {
        let mut set = SetFlowTableRootIn::new();
        set.set_table_id(table);
        self.node.command(&set).map(drop)
    }

    pub(crate) fn set_miss(&mut self, table: u32, miss: u32) -> Result<(), Failure> {
        let mut modify = ModifyFlowTableIn::new();
        modify.set_table_id(table).set_modify_field_select(1);
        if miss != 0 {
            modify
                .flow_table_context_mut()
                .set_table_miss_action(MISS_FORWARD)
                .set_table_miss_id(miss);
        }
        self.node.command(&modify).map(drop)
    }

    /// A group on outer headers.
    pub(crate) fn group(
        &mut self,
        table: u32,
        range: (u32, u32),
        criteria: impl FnOnce(&mut FteMatchSetLyr24),
    ) -> u32 {
        let mut create = CreateFlowGroupIn::new();
        create
            .set_table_id(table)
            .set_start_flow_index(range.0)
            .set_end_flow_index(range.1);
        criteria(create.match_criteria_mut().outer_headers_mut());
        let any = create.match_criteria().0.iter().any(|&byte| byte != 0);
        create.set_match_criteria_enable(u8::from(any));
        self.node.command(&create).unwrap().group_id()
    }

    pub(crate) fn destroy_group(&mut self, table: u32, group: u32) -> Result<(), Failure> {
        let mut destroy = DestroyFlowGroupIn::new();
        destroy.set_table_id(table).set_group_id(group);
        self.node.command(&destroy).map(drop)
    }

    pub(crate) fn delete(&mut self, table: u32, index: u32) -> Result<(), Failure> {
        let mut delete = DeleteFteIn::new();
        delete.set_table_id(table).set_flow_index(index);
        self.node.command(&delete).map(drop)
    }

    /// SET_FLOW_TABLE_ENTRY with the lists that belong to it.
    pub(crate) fn set(&mut self, rule: &Rule) -> Result<(), Failure> {
        let (command, tail) = rule.command();
        self.node.command_with(&command, &tail, 0).map(drop)
    }

    pub(crate) fn counter(&mut self) -> u32 {
        self.node
            .command(&AllocFlowCounterIn::new())
            .unwrap()
            .flow_counter_id()
    }

    /// (packets, octets) of a counter.
    pub(crate) fn counted(&mut self, counter: u32) -> (u64, u64) {
        let mut query = QueryFlowCounterIn::new();
        query.set_flow_counter_id(counter);
        let (_, tail) = self.node.command_with(&query, &[], 16).unwrap();
        let traffic = TrafficCounter::read_from_bytes(&tail).unwrap();
        (traffic.packets(), traffic.octets())
    }

    pub(crate) fn receive(&mut self, frame: &[u8]) {
        self.node.model.receive(&mut self.node.host, frame);
        self.node.advance();
    }
}

/// An entry to set.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) table: u32,
    pub(crate) group: u32,
    pub(crate) index: u32,
    pub(crate) value: FteMatchParam,
    pub(crate) action: u16,
    pub(crate) flow_tag: u32,
    pub(crate) destinations: Vec<DestFormat>,
    pub(crate) counters: Vec<u32>,
    /// `modify_enable_mask`; not 0 makes it a modification.
    pub(crate) modify: u8,
}

impl Rule {
    /// Forwards, or drops if there is nowhere to go.
    pub(crate) fn new(table: u32, group: u32, index: u32, to: &[DestFormat]) -> Self {
        Self {
            table,
            group,
            index,
            value: FteMatchParam::ZERO,
            action: if to.is_empty() { DROP } else { FORWARD },
            flow_tag: 0,
            destinations: to.to_vec(),
            counters: Vec::new(),
            modify: 0,
        }
    }

    pub(crate) fn value(mut self, set: impl FnOnce(&mut FteMatchSetLyr24)) -> Self {
        set(self.value.outer_headers_mut());
        self
    }

    pub(crate) fn counted(mut self, counter: u32) -> Self {
        self.action |= COUNT;
        self.counters.push(counter);
        self
    }

    pub(crate) fn command(&self) -> (SetFteIn, Vec<u8>) {
        let mut set = SetFteIn::new();
        set.set_table_id(self.table)
            .set_flow_index(self.index)
            .set_op_mod(u16::from(self.modify != 0))
            .set_modify_enable_mask(self.modify);
        let context = set.flow_context_mut();
        context
            .set_group_id(self.group)
            .set_action(self.action)
            .set_flow_tag(self.flow_tag)
            .set_destination_list_size(self.destinations.len() as u32)
            .set_flow_counter_list_size(self.counters.len() as u32);
        *context.match_value_mut() = self.value;
        let counters = self.counters.iter().map(|&number| {
            let mut counter = FlowCounterList::ZERO;
            counter.set_flow_counter_id(number);
            counter.0
        });
        let lists = self.destinations.iter().map(|to| to.0).chain(counters);
        (set, lists.flatten().collect())
    }
}
