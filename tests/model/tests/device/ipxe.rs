//! Expectations of iPXE's driver (`golan`) towards a card: internal commands through configuration space, and the firmware's
//! agent for the subnet's management.

use crate::common::Node;
use crate::common::queues::*;
use bareverbs_firmware_cmds::caps::{HcaCap, QueryHcaCapIn, SetHcaCapIn};
use bareverbs_firmware_cmds::hca::InitHcaIn;
use bareverbs_firmware_cmds::uar::AllocUarIn;
use connectx_model::config::PortType;
use connectx_model::{Card, Config, Syndrome};
use zerocopy::FromBytes;

/// Where the vendor-specific capability is, found below.
const SPACE: usize = 0x4;
const SUPPORTED: usize = 0x7;
const ADDRESS: usize = 0x10;
const DATA: usize = 0x14;
/// Spaces.
const COMMANDS: u16 = 3;
const BOOT_INTERFACE: u16 = 4;
/// Addresses in the space of commands.
const CONTROL: u32 = 0;
const SIZE: u32 = 0x1000;
const MAILBOX: u32 = 0x10_0000;
/// Opcode of the access to registers, and PTYS.
const REGISTER_ACCESS: u32 = 0x9001;
const PTYS: u32 = 0x5004;
const PTYS_DWORDS: usize = 16;

struct Gateway {
    node: Node,
    at: usize,
}

impl Gateway {
    fn new(port_type: PortType) -> Self {
        let mut config = Config::card(Card::ConnectX4, 1);
        config.port_type = port_type;
        let mut gateway = Self {
            node: Node::new(config),
            at: 0,
        };
        let mut at = gateway.config(0x34, 1) as usize;
        while gateway.config(at, 1) != 9 {
            at = gateway.config(at + 1, 1) as usize;
            assert_ne!(at, 0, "no such capability");
        }
        gateway.at = at;
        gateway
    }

    fn config(&mut self, offset: usize, len: usize) -> u32 {
        let mut bytes = [0; 4];
        self.node.model.config_read(offset, &mut bytes[..len]);
        u32::from_le_bytes(bytes)
    }

    fn put(&mut self, register: usize, bytes: &[u8]) {
        let host = &mut self.node.host;
        self.node
            .model
            .config_write(host, self.at + register, bytes);
    }

    /// `mlx_pci_gw_set_space`: written as two bytes, and one read.
    fn set_space(&mut self, space: u16) -> bool {
        self.put(SPACE, &space.to_le_bytes());
        self.config(self.at + SUPPORTED, 1) & 0x20 != 0
    }

    fn read(&mut self, address: u32) -> u32 {
        self.put(ADDRESS, &address.to_le_bytes());
        assert_ne!(self.config(self.at + ADDRESS, 4) >> 31, 0, "not done");
        self.config(self.at + DATA, 4)
    }

    fn write(&mut self, address: u32, value: u32) {
        self.put(DATA, &value.to_le_bytes());
        self.put(ADDRESS, &(address | 1 << 31).to_le_bytes());
        assert_eq!(self.config(self.at + ADDRESS, 4) >> 31, 0, "not done");
    }

    /// `mlx_icmd_send_command`: the status.
    fn command(&mut self, opcode: u32, mailbox: &mut [u32]) -> u32 {
        assert!(self.set_space(COMMANDS));
        assert!(mailbox.len() * 4 <= self.read(SIZE) as usize);
        self.write(CONTROL, opcode << 16);
        for (at, &dword) in (MAILBOX..).step_by(4).zip(mailbox.iter()) {
            self.write(at, dword);
        }
        self.write(CONTROL, opcode << 16 | 1);
        for (at, dword) in (MAILBOX..).step_by(4).zip(mailbox.iter_mut()) {
            *dword = self.read(at);
        }
        let control = self.read(CONTROL);
        assert_eq!(control & 1, 0, "busy");
        control >> 8 & 0xff
    }

    /// `mlx_reg_access`: the statuses of command and access.
    fn access(&mut self, register: u32, method: u32, data: &mut [u32]) -> (u32, u32) {
        let mut mailbox = vec![
            1 << 27 | 4 << 16,
            register << 16 | method << 8 | 1,
            0,
            0,
            3 << 27 | (data.len() as u32 + 1) << 16,
        ];
        mailbox.extend_from_slice(data);
        let status = self.command(REGISTER_ACCESS, &mut mailbox);
        data.copy_from_slice(&mailbox[5..]);
        (status, mailbox[0] >> 8 & 0x7f)
    }
}

/// `golan_set_link_speed`, before the function is enabled.
#[test]
fn the_speed_of_the_port_is_set_through_configuration_space() {
    let mut gateway = Gateway::new(PortType::InfiniBand);
    let mut ptys = [0; PTYS_DWORDS];
    ptys[0] = 1 << 16 | 1;
    assert_eq!(gateway.access(PTYS, 1, &mut ptys), (0, 0));
    assert_ne!(ptys[4] & 1, 0, "no SDR");
    assert_eq!(ptys[7] & 0xffff, ptys[4] & 0xffff);
    ptys[7] = ptys[7] & 0xffff_0000 | 1;
    assert_eq!(gateway.access(PTYS, 2, &mut ptys), (0, 0));
    assert_eq!(gateway.access(PTYS, 1, &mut ptys), (0, 0));
    assert_eq!(ptys[7] & 0xffff, 1);
    // A speed that there is not, a port, a register, a method and an opcode.
    for (register, method, port, speed, expected) in [
        (PTYS, 2, 1, 0x8000, (3, 7)),
        (PTYS, 2, 1, 0, (3, 7)),
        (PTYS, 1, 2, 1, (3, 7)),
        (0xffff, 1, 1, 1, (3, 4)),
        (PTYS, 3, 1, 1, (3, 6)),
    ] {
        let mut asked = ptys;
        asked[0] = port << 16 | 1;
        asked[7] = asked[7] & 0xffff_0000 | speed;
        assert_eq!(gateway.access(register, method, &mut asked), expected);
    }
    assert_eq!(gateway.command(0x8007, &mut []), 1);
    assert_eq!(gateway.command(REGISTER_ACCESS, &mut [0; 8]), 4);
    // It is an InfiniBand port's.
    let mut gateway = Gateway::new(PortType::Ethernet);
    let mut ptys = [0; PTYS_DWORDS];
    ptys[0] = 1 << 16 | 4;
    assert_eq!(gateway.access(PTYS, 1, &mut ptys), (0, 0));
    assert_eq!(gateway.access(PTYS, 2, &mut ptys), (3, 7));
}

/// `flexboot_nodnic_is_supported`.
#[test]
fn there_is_no_network_interface_for_boot_programs() {
    let mut gateway = Gateway::new(PortType::InfiniBand);
    assert!(!gateway.set_space(BOOT_INTERFACE));
}

/// `golan_set_hca_cap` makes `log_max_qp` 0; the driver has QP0, QP1 and one more.
#[test]
fn special_queue_pairs_are_not_counted() {
    let mut config = Config::new(1);
    config.port_type = PortType::InfiniBand;
    let mut node = Node::new(config);
    node.enable();
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(1);
    let (_, mut image) = node.command_with(&query, &[], 0x1000).unwrap();
    let mut caps = HcaCap::read_from_bytes(&image[..0x100]).unwrap();
    caps.set_log_max_qp(0);
    image[..0x100].copy_from_slice(&caps.0);
    node.command_with(&SetHcaCapIn::new(), &image, 0).unwrap();
    node.command(&InitHcaIn::new()).unwrap();
    node.uar = node.command(&AllocUarIn::new()).unwrap().uar();
    node.give(16);
    let (pd, eq) = (node.alloc_pd(), node.create_eq(4, 0, 0));
    let cq = node.create_cq(4, eq).number;
    let mut create = |st: u8| {
        let plan = QpPlan {
            pd,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            st,
            user_index: 0,
        };
        node.try_create_qp(plan, |_| {}).map(|_| ())
    };
    const QP0: u8 = 7;
    let full = crate::common::Failure::Status(
        Syndrome::QpExhausted.status() as u8,
        Syndrome::QpExhausted.code(),
    );
    assert_eq!([QP0, QP1, UD].map(&mut create), [Ok(()); 3]);
    assert_eq!(create(UD), Err(full));
}
