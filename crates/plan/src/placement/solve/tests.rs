//! Properties of placements on arbitrary hosts and VMs. `TAUT_PLAN_CASES` sets the number of cases.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::test_runner::Config;
use taut_api::Name;
use taut_api::host::Cpu;

use super::super::problem::{Demand, Grant};
use super::*;

fn config() -> Config {
    let cases = std::env::var("TAUT_PLAN_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { cases: cases.unwrap_or(2000), ..Config::default() }
}

fn name(number: usize) -> Name {
    format!("vm{number}").parse().unwrap()
}

/// Packages × caches × cores, each core with its own number of threads. pCPUs are numbered as Linux
/// does it: the first threads of all cores come first.
fn host(packages: u32, caches: u32, threads: &[usize]) -> Vec<Cpu> {
    let mut cpus = Vec::new();
    for thread in 0..2 {
        for package in 0..packages {
            for (core, _) in threads.iter().enumerate().filter(|(_, threads)| thread < **threads) {
                let core = core as u32;
                let llc = package * caches + core * caches / threads.len() as u32;
                cpus.push(Cpu { id: cpus.len() as u32, package, core, node: package, llc });
            }
        }
    }
    cpus
}

fn hosts() -> impl Strategy<Value = Vec<Cpu>> {
    let smt = prop_oneof![
        (1..12usize).prop_map(|cores| vec![1; cores]),
        (1..12usize).prop_map(|cores| vec![2; cores]),
        vec(1..=2usize, 1..12),
    ];
    let offline = btree_set(0..40u32, 0..3);
    (1..=3u32, 1..=3u32, smt, offline).prop_map(|(packages, caches, threads, offline)| {
        let all = host(packages, caches, &threads);
        let online: Vec<_> = all.iter().filter(|cpu| !offline.contains(&cpu.id)).cloned().collect();
        if online.is_empty() { all } else { online }
    })
}

fn demands() -> impl Strategy<Value = BTreeMap<Name, Demand>> {
    let allowed = prop_oneof![3 => Just(None), 1 => btree_set(0..40u32, 0..20).prop_map(Some)];
    let demand = (1..=6u32, any::<bool>(), allowed);
    let demand = demand.prop_map(|(vcpus, threads, allowed)| Demand { vcpus, threads, allowed });
    btree_map((0..12usize).prop_map(name), demand, 0..8)
}

fn problems() -> impl Strategy<Value = Problem> {
    let current = btree_map((0..12usize).prop_map(name), vec(0..50u32, 0..6), 0..6);
    let promised = prop_oneof![Just(0u64), 0..20_000u64];
    (hosts(), demands(), btree_set(0..40u32, 0..3), promised, current).prop_map(
        |(cpus, demands, fabric_cpus, promised, current)| Problem {
            cpus,
            fabric_cpus,
            promised,
            demands,
            current,
        },
    )
}

/// The next problem, after this placement was carried out.
fn settled(problem: &Problem, placement: &Placement) -> Problem {
    let current = placement.granted.iter().map(|(name, grant)| (name.clone(), grant.cpus.clone()));
    Problem { current: current.collect(), ..problem.clone() }
}

fn core_of(problem: &Problem, id: u32) -> (u32, u32) {
    let cpu = problem.cpus.iter().find(|cpu| cpu.id == id).expect("on-line");
    (cpu.package, cpu.core)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_pcpu_has_two_owners_and_the_host_keeps_one(problem in problems()) {
        let placement = place(&problem);
        let mut owners: BTreeMap<u32, &Name> = BTreeMap::new();
        let mut cores: BTreeMap<(u32, u32), &Name> = BTreeMap::new();
        for (name, grant) in &placement.granted {
            for &cpu in grant.cpus.iter().chain(&grant.idle) {
                prop_assert_eq!(owners.insert(cpu, name), None, "pCPU {} twice", cpu);
                prop_assert!(!problem.fabric_cpus.contains(&cpu));
                let owner = *cores.entry(core_of(&problem, cpu)).or_insert(name);
                prop_assert_eq!(owner, name, "siblings of pCPU {}", cpu);
            }
        }
        let lowest = problem.cpus.iter().map(|cpu| cpu.id).min().unwrap();
        prop_assert!(!owners.contains_key(&lowest));
        // All threads of an owned core are closed to others.
        for cpu in &problem.cpus {
            if cores.contains_key(&(cpu.package, cpu.core)) {
                prop_assert!(owners.contains_key(&cpu.id));
            }
        }
    }

    #[test]
    fn each_vcpu_has_a_pcpu_and_shares_a_core_only_as_asked(problem in problems()) {
        let placement = place(&problem);
        for (name, demand) in &problem.demands {
            prop_assert_ne!(placement.granted.contains_key(name), placement.short.contains_key(name));
            let Some(grant) = placement.granted.get(name) else { continue };
            prop_assert_eq!(grant.cpus.len(), demand.vcpus as usize);
            prop_assert!(demand.allowed.as_ref().is_none_or(|allowed| grant.cpus.iter().all(|cpu| allowed.contains(cpu))));
            for (index, pair) in grant.cpus.windows(2).enumerate() {
                let together = core_of(&problem, pair[0]) == core_of(&problem, pair[1]);
                prop_assert!(!together || (demand.threads && index % 2 == 0));
            }
        }
        prop_assert_eq!(placement.granted.len() + placement.short.len(), problem.demands.len());
    }

    #[test]
    fn placing_again_changes_nothing(problem in problems()) {
        let placement = place(&problem);
        prop_assert_eq!(&place(&settled(&problem, &placement)), &placement);
    }

    #[test]
    fn no_vm_moves_for_a_newcomer_or_when_another_leaves(problem in problems(), more in demands(), gone in 0..12usize) {
        let before = place(&problem);
        let mut next = settled(&problem, &before);
        for (name, demand) in more {
            next.demands.entry(name).or_insert(demand);
        }
        next.demands.remove(&name(gone));
        let after = place(&next);
        for (vm, grant) in &before.granted {
            if *vm != name(gone) {
                prop_assert_eq!(after.granted.get(vm), Some(grant), "{} moved", vm);
            }
        }
    }

    #[test]
    fn only_vms_that_lost_a_pcpu_move(problem in problems(), lost in any::<prop::sample::Index>()) {
        let problem = Problem { promised: 0, ..problem };
        let before = place(&problem);
        let mut next = settled(&problem, &before);
        // Without the lowest pCPU another core would stay with the host.
        if next.cpus.len() < 2 {
            return Ok(());
        }
        let lowest = next.cpus.iter().map(|cpu| cpu.id).min().unwrap();
        let others: Vec<u32> = next.cpus.iter().map(|cpu| cpu.id).filter(|id| *id != lowest).collect();
        let lost = *lost.get(&others);
        let core = core_of(&problem, lost);
        next.cpus.retain(|cpu| cpu.id != lost);
        let smt = |problem: &Problem| Cores::of(problem).width;
        if smt(&problem) != smt(&next) {
            return Ok(());
        }
        let after = place(&next);
        for (vm, grant) in &before.granted {
            if !grant.cpus.iter().any(|cpu| core_of(&problem, *cpu) == core) {
                let stays = after.granted.get(vm).map(|grant| &grant.cpus);
                prop_assert_eq!(stays, Some(&grant.cpus), "{} moved", vm);
            }
        }
    }

    #[test]
    fn reservations_of_other_vms_fit_into_the_pcpus_left(problem in problems()) {
        // Newcomers only: a grant is not taken back for a reservation made since.
        let problem = Problem { current: BTreeMap::new(), ..problem };
        let placement = place(&problem);
        let left = (problem.cpus.len() - placement.exclusive().len()) as u64 * 1000;
        prop_assert!(placement.granted.is_empty() || left >= problem.promised);
    }
}

fn demand(vcpus: u32, threads: bool) -> Demand {
    Demand { vcpus, threads, allowed: None }
}

fn problem(cpus: Vec<Cpu>, demands: &[Demand]) -> Problem {
    let demands = demands.iter().enumerate().map(|(number, demand)| (name(number), demand.clone())).collect();
    Problem { cpus, demands, ..Problem::default() }
}

#[test]
fn two_cpus_make_one_exclusive() {
    let placement = place(&problem(host(1, 1, &[1, 1]), &[demand(1, false), demand(1, false)]));
    assert_eq!(placement.granted[&name(0)], Grant { cpus: vec![1], idle: vec![] });
    let short = &placement.short[&name(1)];
    assert_eq!((short.cores, short.free, short.host), (1, 0, 1));
    assert_eq!(*short.taken, BTreeMap::from([(name(0), 1)]));
}

#[test]
fn siblings_are_idle_or_owned_by_the_same_vm() {
    // Cores 0-3 with threads (0,4) (1,5) (2,6) (3,7).
    let cpus = host(1, 1, &[2, 2, 2, 2]);
    let high = place(&problem(cpus.clone(), &[demand(2, false)]));
    assert_eq!(high.granted[&name(0)], Grant { cpus: vec![1, 2], idle: vec![5, 6] });
    let ht = place(&problem(cpus.clone(), &[demand(3, true)]));
    assert_eq!(ht.granted[&name(0)], Grant { cpus: vec![1, 5, 2], idle: vec![6] });
    let both = place(&problem(cpus, &[demand(2, false), demand(4, true)]));
    assert!(both.short.contains_key(&name(1)));
}

#[test]
fn a_vm_fits_into_one_node_and_small_gaps_fill_first() {
    // Two nodes of four cores. CPU 0 stays with the host, so node 0 has room for three vCPUs.
    let cpus = host(2, 1, &[1; 4]);
    let placement = place(&problem(cpus, &[demand(4, false), demand(3, false)]));
    assert_eq!(placement.granted[&name(0)].cpus, [4, 5, 6, 7]);
    assert_eq!(placement.granted[&name(1)].cpus, [1, 2, 3]);
}

#[test]
fn pcpus_of_the_fabrics_workers_are_not_granted() {
    let mut problem = problem(host(1, 1, &[1, 1]), &[demand(1, false)]);
    problem.fabric_cpus.insert(1);
    let placement = place(&problem);
    assert_eq!(placement.short[&name(0)].host, 2);
}

#[test]
fn a_shortage_counts_free_cores_outside_the_affinity() {
    let cpus = host(2, 1, &[1; 4]);
    let mut problem = problem(cpus, &[demand(2, false), demand(2, false)]);
    let allow = |problem: &mut Problem, number, cpus: &[u32]| {
        problem.demands.get_mut(&name(number)).unwrap().allowed = Some(cpus.iter().copied().collect());
    };
    allow(&mut problem, 0, &[6, 7]);
    allow(&mut problem, 1, &[0, 1, 7]);
    let placement = place(&problem);
    assert_eq!(placement.granted[&name(0)].cpus, [6, 7]);
    let short = &placement.short[&name(1)];
    assert_eq!((short.cores, short.free, short.elsewhere, short.host), (2, 1, 4, 1));
    // A VM gives up a pCPU only when it is no longer allowed.
    problem.current = [(name(0), vec![6, 7])].into();
    allow(&mut problem, 0, &[5, 6, 7]);
    assert_eq!(place(&problem).granted[&name(0)].cpus, [6, 7]);
    allow(&mut problem, 0, &[4, 5, 6]);
    assert_eq!(place(&problem).granted[&name(0)].cpus[0], 6);
}
