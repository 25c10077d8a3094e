//! Options that damage what the models send: loss, delay, and cables that are pulled out.

use bpaf::Bpaf;
use connectx_model::fault::setting as fault;
use connectx_model::link::setting::{self, Fault};

/// Damage to the frames that the program's device models send. Frames that arrive are not touched: give the options to
/// both programs for damage in both directions.
#[derive(Bpaf, Debug, Default)]
#[bpaf(group_help("Impairment:"), guard(
    |it| it.cable_out_for.is_none() || it.cable_out_after.is_some(),
    "--cable-out-for needs --cable-out-after"
))]
pub struct Impairment {
    /// This share of the frames is lost, as in 1% or 0.01; a thousandth is the smallest, here and below.
    #[bpaf(long, argument::<String>("SHARE"), last, parse(|text| check("loss", text)), optional)]
    loss: Option<String>,
    /// This share of the frames comes twice.
    #[bpaf(long, argument::<String>("SHARE"), last, parse(|text| check("duplicate", text)), optional)]
    duplicate: Option<String>,
    /// This share of the frames is overtaken by one to four later ones.
    #[bpaf(long, argument::<String>("SHARE"), last, parse(|text| check("reorder", text)), optional)]
    reorder: Option<String>,
    /// One to three bits of this share of the frames are flipped.
    #[bpaf(long, argument::<String>("SHARE"), last, parse(|text| check("corrupt", text)), optional)]
    corrupt: Option<String>,
    /// Every frame comes so much later, as in 50us, 5ms or 1s.
    #[bpaf(long, argument::<String>("TIME"), last, parse(|text| check("latency", text)), optional)]
    delay: Option<String>,
    /// Any of them in one list, in the words of the examples' --fault: loss=0.01,latency=50us,… Or a fault of a firmware
    /// command of the models: command=CREATE_QP,nth=3,status=BAD_PARAM,syndrome=0x3c5a71; docs/impairment.md has all words.
    #[bpaf(long, argument::<String>("KIND=VALUE,..."), parse(faults), many)]
    fault: Vec<String>,
    /// Decides which frames; the library's log says which number it took without.
    #[bpaf(argument("NUMBER"), last, optional)]
    fault_seed: Option<u64>,
    /// The cables of the models are pulled out so long after the first device was opened.
    #[bpaf(long, argument::<String>("TIME"), last, parse(time), optional)]
    cable_out_after: Option<String>,
    /// And plugged in again after this time; without, they stay out.
    #[bpaf(long, argument::<String>("TIME"), last, parse(time), optional)]
    cable_out_for: Option<String>,
}

impl Impairment {
    /// The environment of the program: variables and their values.
    pub fn environment(self) -> Vec<(&'static str, String)> {
        let single = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
            ("latency", self.delay),
        ];
        let single = single
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let faults: Vec<String> = self.fault.into_iter().chain(single).collect();
        let faults = (!faults.is_empty()).then(|| faults.join(";"));
        let seed = self.fault_seed.map(|seed| seed.to_string());
        [
            ("BAREVERBS_FAULT", faults),
            ("BAREVERBS_FAULT_SEED", seed),
            ("BAREVERBS_CABLE_OUT_AFTER", self.cable_out_after),
            ("BAREVERBS_CABLE_OUT_FOR", self.cable_out_for),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// A value that the library will take.
fn check(name: &str, value: String) -> Result<String, String> {
    Fault::parse(name, &value)?;
    Ok(value)
}

fn faults(list: String) -> Result<String, String> {
    list.parse::<fault::Setting>()?;
    Ok(list)
}

fn time(text: String) -> Result<String, String> {
    setting::time(&text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use bareverbs_command_line::parse_line;
    use bpaf::Parser;

    use super::*;

    fn parse(line: &str) -> Result<Vec<(&'static str, String)>, String> {
        parse_line(&impairment().to_options(), line).map(Impairment::environment)
    }

    #[test]
    fn options_become_the_librarys_settings() {
        assert_eq!(parse(""), Ok(vec![]));
        let line = "--loss 1% --reorder 0.002 --delay 50us --fault duplicate=1% --fault-seed 7 --cable-out-after 2s";
        let wanted = [
            (
                "BAREVERBS_FAULT",
                "duplicate=1%;loss=1%;reorder=0.002;latency=50us",
            ),
            ("BAREVERBS_FAULT_SEED", "7"),
            ("BAREVERBS_CABLE_OUT_AFTER", "2s"),
        ]
        .map(|(name, value)| (name, value.to_owned()));
        assert_eq!(parse(line).unwrap(), wanted);
    }

    #[test]
    fn commands_fail_beside_frames() {
        let command = "command=CREATE_QP,nth=3,status=BAD_PARAM,syndrome=0x3c5a71";
        let environment = parse(&format!(
            "--fault {command} --fault vanish,command=2ERR_QP --loss 1%"
        ));
        let wanted = format!("{command};vanish,command=2ERR_QP;loss=1%");
        assert_eq!(environment, Ok(vec![("BAREVERBS_FAULT", wanted.clone())]));
        assert_eq!(fault::list(&wanted).map(|list| list.len()), Ok(3));
    }

    #[test]
    fn what_the_library_would_refuse_is_refused() {
        for line in [
            "--loss 101%",
            "--loss 0.01%",
            "--corrupt much",
            "--delay 50",
            "--delay 5s",
            "--fault loss=1%,lose=1%",
            "--fault loss=1%;loss=2%",
            "--fault command=CREATE_QP",
            "--cable-out-after soon",
            "--cable-out-for 1s",
        ] {
            parse(line).expect_err(line);
        }
    }
}
