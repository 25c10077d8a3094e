//! Lists of changes to headers, as Linux's driver makes them for rules of tc, and their life.

use crate::common::Failure;
use crate::lab::*;
use bareverbs_firmware_cmds::flow::*;
use bareverbs_firmware_cmds::values::HeaderField;
use connectx_model::Syndrome;

const MODIFY_HEADER: u16 = 1 << 6;

fn set(field: HeaderField, data: u32) -> [u8; 8] {
    let mut action = SetActionIn::ZERO;
    action
        .set_action_type(1)
        .set_field(field.number())
        .set_data(data);
    action.0
}

fn add(field: HeaderField, data: u32) -> [u8; 8] {
    let mut action = AddActionIn::ZERO;
    action
        .set_action_type(2)
        .set_field(field.number())
        .set_data(data);
    action.0
}

fn lab() -> Lab {
    Lab::with(rewriting())
}

impl Lab {
    fn rewrite(&mut self, actions: &[[u8; 8]]) -> Result<u32, Failure> {
        let mut alloc = AllocModifyHeaderContextIn::new();
        alloc.set_num_of_actions(actions.len() as u8);
        let (output, _) = self.node.command_with(&alloc, actions.as_flattened(), 0)?;
        Ok(output.modify_header_id())
    }

    fn free_rewrite(&mut self, number: u32) -> Result<(), Failure> {
        let mut dealloc = DeallocModifyHeaderContextIn::new();
        dealloc.set_modify_header_id(number);
        self.node.command(&dealloc).map(drop)
    }

    /// An entry that changes headers.
    fn set_changing(&mut self, rule: &Rule, rewrite: u32) -> Result<(), Failure> {
        let (mut command, tail) = rule.command();
        let context = command.flow_context_mut();
        let action = context.action() | MODIFY_HEADER;
        context.set_action(action).set_modify_header_id(rewrite);
        self.node.command_with(&command, &tail, 0).map(drop)
    }
}

/// A datagram to an address and a time to live, its header's checksum from an independent source (Wikipedia's example).
fn datagram() -> Vec<u8> {
    let mut frame = vec![2, 0xc9, 0, 0, 0, 1, 2, 0xc9, 0, 0, 0, 2, 8, 0];
    frame.extend([
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ]);
    frame.resize(14 + 0x73, 0);
    frame
}

/// The table of tc's rules stands before the others, which see what it made of the frames.
#[test]
fn later_tables_see_the_changed_headers() {
    let mut lab = lab();
    let later = lab.table(9, 2, 0);
    let rules = lab.table(4, 2, later);
    let tir = lab.tir();
    let by_ttl = lab.group(later, (0, 3), |set| {
        set.set_ttl_hoplimit(0xff);
    });
    let counters: Vec<u32> = [0x3f, 0x40, 0x3e]
        .into_iter()
        .enumerate()
        .map(|(index, ttl)| {
            let counter = lab.counter();
            let rule = Rule::new(later, by_ttl, index as u32, &[to_tir(tir)]).counted(counter);
            let rule = rule.value(|set| {
                set.set_ttl_hoplimit(ttl);
            });
            lab.set(&rule).unwrap();
            counter
        })
        .collect();
    lab.receive(&datagram());
    assert_eq!(lab.counted(counters[1]), (1, 0x81));

    let down = lab.rewrite(&[add(HeaderField::IpTtl, 0xff)]).unwrap();
    let group = lab.group(rules, (0, 3), |set| {
        set.set_ip_version(0xf);
    });
    let rule = Rule::new(rules, group, 0, &[to_table(later)]).value(|set| {
        set.set_ip_version(4);
    });
    lab.set_changing(&rule, down).unwrap();
    lab.receive(&datagram());
    lab.receive(&datagram());
    assert_eq!(lab.counted(counters[0]), (2, 0x102));
    assert_eq!(lab.counted(counters[1]), (1, 0x81));
    // Not IPv4: it goes by the rule, and unchanged.
    lab.receive(&[0; 60]);
    assert_eq!(lab.counted(counters[0]), (2, 0x102));

    // What an entry uses stays.
    let mut query = QueryFteIn::new();
    query.set_table_id(rules);
    let (answer, _) = lab.node.command_with(&query, &[], 8).unwrap();
    assert_eq!(answer.flow_context().modify_header_id(), down);
    assert_eq!(lab.free_rewrite(down), Err(refused(Syndrome::RewriteBusy)));
    lab.delete(rules, 0).unwrap();
    lab.free_rewrite(down).unwrap();
    assert_eq!(
        lab.free_rewrite(down),
        Err(refused(Syndrome::RewriteUnknown))
    );
}

#[test]
fn refusals() {
    let mut lab = lab();
    let (table, tir) = (lab.table(4, 2, 0), lab.tir());
    let group = lab.group(table, (0, 3), |_| ());
    let rule = Rule::new(table, group, 0, &[to_tir(tir)]);
    let port = set(HeaderField::UdpDport, 1);
    // A length of zero is 32 bits, which a port does not have.
    assert_eq!(lab.rewrite(&[port]), Err(refused(Syndrome::RewriteRange)));
    let address = set(HeaderField::Dipv4, 1);
    assert_eq!(lab.rewrite(&[]), Err(refused(Syndrome::RewriteLength)));
    assert_eq!(
        lab.rewrite(&[address; 5]),
        Err(refused(Syndrome::RewriteLength))
    );
    let mut alloc = AllocModifyHeaderContextIn::new();
    alloc.set_num_of_actions(2);
    let short = lab.node.command_with(&alloc, &address, 0).map(drop);
    assert_eq!(short, Err(refused(Syndrome::RewriteShort)));
    alloc.set_num_of_actions(1).set_table_type(2);
    let other = lab.node.command_with(&alloc, &address, 0).map(drop);
    assert_eq!(other, Err(refused(Syndrome::FlowTableType)));
    alloc.set_table_type(0).set_op_mod(1);
    let other = lab.node.command_with(&alloc, &address, 0).map(drop);
    assert_eq!(other, Err(refused(Syndrome::FlowOpMod)));
    let unknown = lab.set_changing(&rule, 77);
    assert_eq!(unknown, Err(refused(Syndrome::RewriteUnknown)));
    assert_eq!(
        lab.set_changing(&rule, 0),
        Err(refused(Syndrome::FteRewrite))
    );
    let (mut command, tail) = rule.command();
    command.flow_context_mut().set_modify_header_id(77);
    let without = lab.node.command_with(&command, &tail, 0).map(drop);
    assert_eq!(without, Err(refused(Syndrome::FteRewrite)));
    let all: Vec<u32> = (0..4)
        .map(|_| lab.rewrite(&[address; 4]).unwrap())
        .collect();
    assert_eq!(
        lab.rewrite(&[address]),
        Err(refused(Syndrome::RewriteExhausted))
    );
    for number in all {
        lab.free_rewrite(number).unwrap();
    }
    lab.rewrite(&[address]).unwrap();

    let mut plain = rewriting();
    plain
        .flow_table
        .flow_table_properties_nic_receive_mut()
        .set_max_modify_header_actions(0);
    let mut plain = Lab::with(plain);
    assert_eq!(
        plain.rewrite(&[address]),
        Err(refused(Syndrome::RewriteUnsupported))
    );
}
