//! Compares the cards with what programs printed on real ones, from public posts that the table in docs/cards.md names.

use crate::common::Node;
use connectx_model::{Card, Config, PortType};

/// Configuration space of a card, as a host reads it.
struct Space(Node);

impl Space {
    fn of(config: Config) -> Self {
        Self(Node::new(config))
    }

    fn read(&mut self, at: usize) -> u32 {
        let mut dword = [0; 4];
        self.0.model.config_read(at, &mut dword);
        u32::from_le_bytes(dword)
    }

    /// The offset of each capability, in the order of the list.
    fn capabilities(&mut self) -> Vec<(u8, usize)> {
        let mut found = Vec::new();
        let mut at = self.read(0x34) as usize & 0xfc;
        while at != 0 {
            let head = self.read(at);
            found.push((head as u8, at));
            assert!(found.len() < 16, "the list has no end");
            at = (head >> 8) as usize & 0xfc;
        }
        found
    }
}

/// `lspci -vvv` shows the same of all kinds of cards: Express at 0x60, MSI-X at 0x9c with its table at 0x2000 and its pending bits
/// at 0x3000 of BAR 0, the vendor's own at 0xc0, power management at 0x40, and BAR 0 of 32 MiB. The vital product data at 0x48,
/// second in the list, is not modelled.
#[test]
fn lspci_shows_a_card_as_posted() {
    for (card, msix, speed, lanes) in [
        (Card::ConnectX4Lx, 64, 3, 8),
        (Card::ConnectX4, 64, 3, 8),
        (Card::ConnectX6Dx, 64, 4, 16),
        (Card::ConnectX7, 64, 5, 16),
        (Card::BlueField, 64, 4, 16),
    ] {
        let mut space = Space::of(Config::card(card, 1));
        let expected = [(0x10, 0x60), (0x11, 0x9c), (0x09, 0xc0), (0x01, 0x40)];
        assert_eq!(space.capabilities(), expected, "{card}");
        assert_eq!(space.read(0x9c) >> 16 & 0x7ff, msix - 1, "{card}");
        assert_eq!([space.read(0xa0), space.read(0xa4)], [0x2000, 0x3000]);
        let link = space.read(0x6c) & 0x3ff;
        assert_eq!((link & 0xf, link >> 4), (speed, lanes), "{card}");
        assert_eq!(space.read(0x70) >> 16 & 0x3ff, link, "{card}");
        assert_eq!(space.read(0x8c), (2 << speed) - 2, "{card}");
        assert_eq!(space.read(0x08) >> 16, 0x0200, "{card}");
        space
            .0
            .model
            .config_write(&mut space.0.host, 0x10, &[0xff; 8]);
        assert_eq!(!(space.read(0x10) & !0xf) + 1, 32 << 20, "{card}");
    }
    // "Infiniband controller [0207]".
    let mut space = Space::of(Config {
        port_type: PortType::InfiniBand,
        ..Config::card(Card::ConnectX7, 1)
    });
    assert_eq!(space.read(0x08) >> 16, 0x0207);
}

/// `hw_id` in health reports of Linux.
#[test]
fn the_health_buffer_names_the_kind_of_card() {
    for (card, hw_id) in [(Card::ConnectX5, 0x20d), (Card::ConnectX6Dx, 0x212)] {
        let mut node = Node::new(Config::card(card, 1));
        assert_eq!(node.read32(0x234), hw_id, "{card}");
    }
}

/// `ibv_devinfo -v`, by what Linux makes of capabilities (`mlx5_ib_query_device`, `mlx5_query_port_roce`).
#[test]
fn ibv_devinfo_shows_a_card_as_posted() {
    /// A line of `ibv_devinfo -v`, its value here, and what was posted.
    type Line = (&'static str, u64, u64);
    let lines = |card: Card, posted: [u64; 14]| -> Vec<Line> {
        let config = Config::card(card, 1);
        let (caps, max) = (&config.general, &config.general_max);
        let power = |exponent: u8| 1u64 << exponent;
        let read = power(max.log_max_ra_req_qp());
        let shown = [
            ("max_qp", power(max.log_max_qp())),
            ("max_qp_wr", power(caps.log_max_qp_sz())),
            ("max_cq", power(caps.log_max_cq())),
            ("max_cqe", power(caps.log_max_cq_sz()) - 1),
            ("max_mr", power(caps.log_max_mkey())),
            ("max_pd", power(caps.log_max_pd())),
            ("max_qp_rd_atom", read),
            ("max_mcast_grp", power(caps.log_max_mcg())),
            ("max_mcast_qp_attach", caps.max_qp_mcg().into()),
            ("max_srq", power(caps.log_max_srq())),
            ("max_srq_wr", power(caps.log_max_srq_sz()) - 1),
            ("max_pkeys", 128 << caps.pkey_table_size()),
            ("max_rwq_indirection_tables", power(caps.log_max_rqt())),
            ("max_wq_type_rq", power(caps.log_max_rq())),
        ];
        let lines = shown.into_iter().zip(posted);
        lines
            .map(|((name, ours), posted)| (name, ours, posted))
            .collect()
    };
    let connectx_5 = [
        262_144, 32_768, 16_777_216, 4_194_303, 16_777_216, 8_388_608, 16, 2_097_152, 240,
        8_388_608, 32_767, 128, 1_048_576, 8_388_608,
    ];
    let connectx_6_dx = [
        131_072, 32_768, 16_777_216, 4_194_303, 16_777_216, 8_388_608, 16, 2_097_152, 240,
        8_388_608, 32_767, 128, 524_288, 8_388_608,
    ];
    for (card, posted) in [
        (Card::ConnectX5, connectx_5),
        (Card::ConnectX6Dx, connectx_6_dx),
    ] {
        for (name, ours, posted) in lines(card, posted) {
            assert_eq!(ours, posted, "{card}: {name}");
        }
    }
    let config = Config::card(Card::ConnectX6Dx, 1);
    assert_eq!(config.general.device_frequency_khz(), 1_000_000);
    assert_eq!(config.general.local_ca_ack_delay(), 16);
    assert_eq!(config.roce.roce_address_table_size(), 255);
}

/// Names of boards have 13 characters, of which the first three name the seller: MT_0000000359, DEL0000000036, LNV0000000049.
#[test]
fn board_identifications_have_the_form_of_those_posted() {
    for &card in Card::ALL {
        let board = Config::card(card, 1).board_id;
        let (text, rest) = board.split_at(13);
        assert!(text[..3].is_ascii() && text[3..].iter().all(u8::is_ascii_digit));
        assert_eq!(rest, [0; 3], "{card}");
    }
}
