//! From a complaint to its cause: six prepared faults, each looked for on the page and in the
//! terminal, as by somebody who knows nothing of it. No path may have more than three steps.

use taut_tests::{Cable, Controller, CpuLimit, Prerequisite, Taut, busy_machine, eventually, ip, require};

use crate::page;

/// Steps that a path may have.
const MOST_STEPS: usize = 3;
/// A VM with a card.
const MACHINE: &str = "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\n";

/// Somebody who looks for a cause, step by step.
struct Search<'a> {
    taut: &'a Taut,
    fault: &'static str,
    steps: Vec<String>,
    /// Output of the last step.
    shown: String,
}

impl<'a> Search<'a> {
    /// Opens the first page.
    fn on_the_page(taut: &'a Taut, fault: &'static str) -> Self {
        let mut search = Self { taut, fault, steps: Vec::new(), shown: String::new() };
        search.load("/", "open the page".to_owned());
        search
    }

    fn in_the_terminal(taut: &'a Taut, fault: &'static str) -> Self {
        Self { taut, fault, steps: Vec::new(), shown: String::new() }
    }

    fn load(&mut self, address: &str, step: String) {
        self.shown = page::load(self.taut, address);
        self.steps.push(step);
    }

    /// Follows the first link of the content whose text is this.
    fn follow(&mut self, text: &str) {
        self.follow_behind("<main", text);
    }

    /// Follows the first such link behind a text.
    fn follow_behind(&mut self, before: &str, text: &str) {
        let (_, content) =
            self.shown.split_once(before).unwrap_or_else(|| panic!("no {before}: {}", self.shown));
        let links = content.split("<a ").skip(1).filter_map(|link| {
            let address = link.split_once("href=\"")?.1.split_once('"')?.0;
            let shown = link.split_once('>')?.1.split_once("</a>")?.0;
            Some((address.to_owned(), shown.to_owned()))
        });
        let links: Vec<_> = links.collect();
        let found = links.iter().find(|(_, shown)| shown == text);
        let (address, _) = found.unwrap_or_else(|| panic!("no link `{text}` among {links:?}"));
        self.load(&address.clone(), format!("follow \"{text}\" to {address}"));
    }

    /// Follows a link of the navigation.
    fn go_to(&mut self, address: &str) {
        assert!(self.shown.contains(&format!("href=\"{address}\"")), "{}", self.shown);
        self.load(address, format!("go to {address}"));
    }

    /// Runs `taut WORDS`.
    fn run(&mut self, words: &str) {
        self.shown = self.taut.ok(words.split(' '));
        self.steps.push(format!("taut {words}"));
    }

    /// Ends the search: the last step shows the cause.
    fn finds(self, cause: &str) {
        let Self { fault, steps, shown, .. } = self;
        assert!(shown.contains(cause), "{fault}: `{cause}` is not in\n{shown}");
        assert!(steps.len() <= MOST_STEPS, "{fault}: {steps:?}");
        println!("path of {} steps: {fault}: {}: \"{cause}\"", steps.len(), steps.join(", "));
    }
}

#[test]
fn a_neighbour_takes_the_cpu_of_a_slow_vm() {
    let taut = Taut::start();
    let _slow = busy_machine(taut.dir(), "slow", 2);
    eventually("the VM waits", || {
        taut.ok(["vm", "stats"]).contains("slow: vCPU 1 was ready to run and waited").then_some(())
    });
    let fault = "two busy vCPUs have one pCPU";
    let mut search = Search::on_the_page(&taut, fault);
    search.follow("slow");
    search.follow("ready");
    search.finds("more vCPUs want to run than there are pCPUs");

    let mut search = Search::in_the_terminal(&taut, fault);
    search.run("vm stats slow");
    search.finds("was ready to run and waited for a pCPU");
}

#[test]
fn a_limit_of_its_cpu_time_makes_a_vm_slow() {
    if !require(Prerequisite::CgroupV1(Controller::Cpu)) {
        return;
    }
    let taut = Taut::start();
    // Fields are dropped in their order: the machine before its group.
    let machine = busy_machine(taut.dir(), "slow", 1);
    let pid = machine.id();
    let mut limited = (machine, None);
    limited.1 = Some(CpuLimit::enter(pid));
    eventually("the limit is felt", || {
        let all = taut.json(["vm", "stats"]);
        let slow = all.as_array()?.iter().find(|vm| vm["pid"] == u64::from(pid))?;
        // By then, the wait for the limit is the longest wait.
        let percent = |name: &str| slow[name].as_f64();
        (percent("throttled_percent")? > 20.0).then_some(())
    });
    let fault = "a control group limits the VM";
    let mut search = Search::on_the_page(&taut, fault);
    search.follow("slow");
    search.follow("throttled");
    search.finds("A CPU limit kept the VM from running");

    let mut search = Search::in_the_terminal(&taut, fault);
    search.run("vm stats slow");
    search.finds("its CPU limit kept it from running");
}

#[test]
fn traffic_shaping_makes_a_card_slow() {
    let taut = Taut::start().with_lan();
    for (name, ip) in [("m1", "10.85.0.1/24"), ("m2", "10.85.0.2/24")] {
        let nic = format!("[[nic]]\nportgroup = \"lan\"\nip = \"{ip}\"\n");
        taut.boot(name, &format!("kind = \"micro\"\nmemory = \"64MiB\"\n{nic}"));
    }
    taut.ok(["vm", "set", "m2", "--nic", "0", "--to-guest", "average=5Mbit,burst=64KiB"]);
    taut.ok(["bench", "stream", "m1", "m2", "--duration", "3"]);
    let fault = "the card of the VM is limited to 5 Mbit/s";
    let mut search = Search::on_the_page(&taut, fault);
    search.follow_behind(">m2<", "nic0");
    search.finds("5.00\u{a0}Mbps");

    let mut search = Search::in_the_terminal(&taut, fault);
    search.run("vm show m2");
    search.finds("5Mbit");
}

#[test]
fn a_link_is_down_because_the_vm_is_off() {
    let taut = Taut::start().with_lan();
    let file = taut.file("m.toml", MACHINE);
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m1"]);
    let fault = "the VM of the card is off";
    let mut search = Search::on_the_page(&taut, fault);
    search.follow("powered-off");
    search.finds("The card belongs to a VM that is stopped");

    let mut search = Search::in_the_terminal(&taut, fault);
    search.run("vm show m1");
    search.finds("the VM is off: taut vm start m1");
}

#[test]
fn a_link_is_down_because_somebody_has_unplugged_it() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", MACHINE);
    taut.ok(["vm", "set", "m1", "--nic", "0", "--link", "down"]);
    let fault = "the card was unplugged";
    let mut search = Search::on_the_page(&taut, fault);
    search.follow("taken-down");
    search.finds("Somebody has unplugged the card");

    let mut search = Search::in_the_terminal(&taut, fault);
    search.run("vm show m1");
    search.finds("taken down");
}

#[test]
fn an_uplink_is_down_because_its_cable_is() {
    let taut = Taut::start().with_lan();
    let cable = Cable::plug();
    taut.ok(["uplink", "add", "sw", &cable.card]);
    ip(&format!("link set dev {} carrier off", cable.card));
    let fault = "the cable of the uplink is pulled";
    eventually("the uplink has noticed", || taut.ok(["uplink", "list"]).contains("no carrier").then_some(()));
    let mut search = Search::on_the_page(&taut, fault);
    search.go_to("/networks");
    search.follow("no-carrier");
    search.finds("cable");

    let mut search = Search::in_the_terminal(&taut, fault);
    search.run("uplink list");
    search.finds("no carrier");
}
