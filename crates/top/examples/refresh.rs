//! Measures how long a refresh of `taut top` takes on this host, with ports of a made-up daemon:
//! `cargo run --release -p taut-top --example refresh -- 500`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use taut_api::route::PortInfo;
use taut_top::keys::State;
use taut_top::rates;
use taut_top::reading::Reader;
use taut_top::screen::{self, Shown};
use taut_top::table;
use taut_top::view::View;

/// Number of refreshes of each view.
const ROUNDS: usize = 20;

fn main() {
    let count: u32 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(500);
    let answer: Vec<_> = (0..count).map(port).collect();
    let answer = serde_json::Value::from(answer).to_string();
    let ports = move || serde_json::from_str::<Vec<PortInfo>>(&answer).ok();
    let mut reader = Reader::new(Path::new("/"), Box::new(ports));
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).expect("a screen in memory");
    let mut last = reader.read();
    let vcpus: usize = last.machines.iter().map(|machine| machine.vcpus.len()).sum();
    println!("{} VMs, {vcpus} vCPUs, {} threads, {count} ports", last.machines.len(), last.threads.len());
    for view in View::ALL {
        let expanded: BTreeSet<_> = last.machines.iter().map(|machine| machine.pid.to_string()).collect();
        let mut state = State { expanded, ..State::default() };
        state.settings.view = view;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            std::thread::sleep(Duration::from_millis(300));
            let begun = Instant::now();
            let now = reader.read();
            let read = begun.elapsed();
            let rates = rates::between(&last, &now);
            let rows = table::arranged(table::rows(view, &rates), &state.settings, &state.expanded);
            let shown = Shown { state: &state, rates: Some(&rates), rows: &rows };
            terminal.draw(|frame| screen::draw(frame, &shown)).expect("a screen in memory");
            times.push((begun.elapsed(), read));
            last = now;
        }
        times.sort();
        let (whole, read) = times[ROUNDS / 2];
        let most = times[ROUNDS - 1].0;
        println!("{view}: median {whole:.1?} (reading {read:.1?}), most {most:.1?}");
    }
}

fn port(number: u32) -> serde_json::Value {
    let counters = serde_json::json!({ "rx_frames": 1_000_000, "tx_frames": 2_000_000, "kicks": 5 });
    serde_json::json!({
        "port": number, "owner": format!("vm/web{number}/nic0"), "mac": "02:00:00:00:00:01",
        "vswitch": "sw", "portgroup": "lan", "link": "up", "counters": counters,
    })
}
