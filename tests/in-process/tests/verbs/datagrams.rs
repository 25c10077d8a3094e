//! Datagrams: to one QP, to a multicast group, and to the QP of management.

use bareverbs_core::{
    AhAttr, Destination, DestroyQpError, Gsi, Inline, NetworkHeader, QpCap, Qpn, Ud, WcFlags,
    WcOpcode,
};

use crate::lab::{CAP, End, MS, SIGNALED, SILENT, got, lab, ok};

#[test]
fn datagrams() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Ud>();
        let ah = |node: usize, flow_label| {
            let other = &lab.sides[1 - node];
            let attr = AhAttr {
                dgid: other.gid,
                dmac: other.mac,
                hop_limit: 33,
                traffic_class: 0x28,
                flow_label,
                ..AhAttr::default()
            };
            lab.sides[node].device.create_ah(&attr).expect("AH")
        };
        let there = ah(0, 0x12345);
        let to = Destination {
            ah: &there,
            remote_qpn: b.qp.qpn(),
            remote_qkey: 0x1234_5678,
        };
        for (id, len) in [0, 1, 100, 1024, 4056].into_iter().enumerate() {
            let id = id as u64;
            a.fill(0, len, id);
            b.receive(id, 0, 40 + 4096);
            let sge = a.sge(0, len);
            a.qp.send_queue()
                .batch()
                .send_to_imm(id, SIGNALED, to, 7, sge)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            let wc = got(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            assert_eq!(wc.byte_len as usize, 40 + len);
            assert_eq!((wc.src_qp, wc.qp_num), (a.qp.qpn(), b.qp.qpn()));
            assert_eq!(
                (wc.flags, wc.imm_data),
                (WcFlags::GRH | WcFlags::WITH_IMM, 7)
            );
            b.assert_pattern(40, len, id);
            // The IPv4 header, in the last 20 of the 40 bytes.
            let mut header = [0; 20];
            b.buffer.copy_out(20, &mut header).unwrap();
            assert_eq!(
                (header[0], header[1] >> 2, header[8], header[9]),
                (0x45, 0x28 >> 2, 33, 17)
            );
            assert_eq!(header[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
        }
        // The completion says which header came.
        b.receive(70, 0, 4096);
        a.qp.send_queue()
            .batch()
            .send_to(70, SILENT, to, Inline(b"hello"))
            .unwrap();
        lab.pause(MS);
        let header =
            b.cq.poll()
                .unwrap()
                .map(|completion| completion.network_header());
        assert_eq!(header, Some(NetworkHeader::Ipv4));

        // A wrong Q_Key, an unknown QP: dropped without an error.
        b.receive(80, 0, 4096);
        for wrong in [
            Destination {
                remote_qkey: 1,
                ..to
            },
            Destination {
                remote_qpn: Qpn::from_low_bits(0x7f_ffff),
                ..to
            },
        ] {
            a.qp.send_queue()
                .batch()
                .send_to(81, SIGNALED, wrong, Inline(b"x"))
                .unwrap();
            ok(lab.wait(&mut a.cq), 81, WcOpcode::Send);
        }
        assert_eq!(lab.try_wait(&mut b.cq, 10 * MS), None);
        a.qp.send_queue()
            .batch()
            .send_to(82, SIGNALED, to, Inline(b"right"))
            .unwrap();
        assert_eq!(got(lab.wait(&mut b.cq), 80, WcOpcode::Recv).byte_len, 45);
    });
}

#[test]
fn multicast() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Ud>();
        let group = bareverbs_core::Gid::from_ipv4([239, 1, 2, 3].into());
        let dmac = [0x01, 0x00, 0x5e, 1, 2, 3];
        let attr = AhAttr {
            dgid: group,
            dmac,
            hop_limit: 1,
            ..AhAttr::default()
        };
        let ah = lab.sides[0].device.create_ah(&attr).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::ANY,
            remote_qkey: 0x1234_5678,
        };
        b.receive(1, 0, 4096);
        let send = |a: &mut End<'_, Ud>| {
            a.qp.send_queue()
                .batch()
                .send_to(9, SILENT, to, Inline(b"all"))
                .unwrap();
            lab.pause(MS);
        };
        send(&mut a);
        assert!(b.cq.poll().unwrap().is_none(), "not a member yet");
        b.qp.attach_mcast(group).unwrap();
        send(&mut a);
        assert_eq!(got(lab.wait(&mut b.cq), 1, WcOpcode::Recv).byte_len, 43);
        let (qp, error) = b.qp.destroy().unwrap_err();
        assert_eq!(error, DestroyQpError::Attached { groups: 1 });
        b.qp = qp;
        b.qp.detach_mcast(group).unwrap();
        assert!(b.qp.detach_mcast(group).is_err(), "only once");
        b.receive(2, 0, 4096);
        send(&mut a);
        assert!(b.cq.poll().unwrap().is_none(), "no longer a member");
        b.qp.destroy().map_err(|(_, error)| error).unwrap();
    });
}

#[test]
fn management_datagrams() {
    lab(|lab| {
        let cap = QpCap {
            max_inline_data: 0,
            ..CAP
        };
        let mut ends = [lab.end::<Gsi>(0, cap), lab.end::<Gsi>(1, cap)];
        lab.connect(&mut ends, &|attr| attr.qkey = 0x8001_0000);
        let [mut a, mut b] = ends;
        let attr = AhAttr {
            dgid: lab.sides[1].gid,
            dmac: lab.sides[1].mac,
            hop_limit: 64,
            ..AhAttr::default()
        };
        let ah = lab.sides[0].device.create_ah(&attr).unwrap();
        let to = Destination {
            ah: &ah,
            remote_qpn: Qpn::from_low_bits(1),
            remote_qkey: 0x8001_0000,
        };
        for id in 0..50 {
            a.fill(0, 256, id);
            b.receive(id, 0, 40 + 256);
            let sge = a.sge(0, 256);
            a.qp.send_queue()
                .batch()
                .send_to(id, SIGNALED, to, sge)
                .unwrap();
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
            let wc = got(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            assert_eq!(
                (wc.byte_len, wc.src_qp.number(), wc.pkey_index),
                (296, 1, 0xffff)
            );
            b.assert_pattern(40, 256, id);
        }
    });
}
