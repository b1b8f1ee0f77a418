//! Transfers whose sender leaves its queue pair in the middle. Afterwards the list of connections
//! shows how each end goes.

use super::stage::{ADDRESS, TRANSFERS};
use crate::figure::shown;
use crate::lab::Lab;
use crate::reason::Measured;
use crate::row::Results;
use crate::sets::qp::shells::{Connections, LIBRARY, shell};

/// What the sender does, and whether it keeps its queue pair.
const WAYS: [(&str, bool); 11] = [
    ("stay", true),
    ("fork", true),
    ("fdopen", false),
    ("sendfile", false),
    ("splice", false),
    ("pass", false),
    ("exec", false),
    ("spawn", false),
    ("stdin", false),
    ("stdout", false),
    ("stderr", false),
];

pub(super) fn measure(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    let bytes: u64 = lab.pick(64 << 20, 4 << 20);
    let (mut inexact, mut other, mut done) = (0.0, 0.0, 0.0);
    let mut wrong = Vec::new();
    for (way, stays) in WAYS {
        let ways = [
            (format!("--way {way}"), stays, true),
            (format!("--peer-way {way}"), true, stays),
            (format!("--way {way} --peer-way {way}"), stays, stays),
        ];
        for (options, client, server) in ways {
            let lines = format!(
                "rm -f go out\n{LIBRARY} tcp_transfer connect {ADDRESS}:{TRANSFERS} --bytes {bytes} {options} \
                 --hold /tmp/go >out 2>said &\nuntil grep -q holding out; do sleep 0.2; done\ncat out"
            );
            let said = shell(lab, "client", &lines)?;
            let list = Connections::list(lab)?;
            shell(lab, "client", ">go; until grep -q transfers: out; do sleep 0.2; done")?;
            let exact = said.all_between("exact: ", &format!("{bytes} bytes each way")).len() as f64;
            let mut ends = 0.0;
            for (vm, rings) in [("client", client), ("server", server)] {
                let [ring, packets] = if rings { [1.0, 0.0] } else { [0.0, 1.0] };
                ends += (list.ends(vm, TRANSFERS, "ring")? - ring).abs();
                ends += (list.ends(vm, TRANSFERS, "packets")? - packets).abs();
            }
            if exact < 1.0 || ends > 0.0 {
                wrong.push(options);
            }
            inexact += (1.0 - exact).abs();
            other += ends;
            done += 1.0;
        }
    }
    let wrong = if wrong.is_empty() { String::new() } else { format!("; wrong: {}", wrong.join(", ")) };
    let mib = shown(bytes as f64 / 1_048_576.0);
    let detail =
        format!("{mib} MiB each way; {} ways, by the client, the server and both{wrong}", WAYS.len());
    results.record("QP7-leaving", [inexact, other, done], detail);
    Ok(())
}
