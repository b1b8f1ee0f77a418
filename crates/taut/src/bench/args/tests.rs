use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Between,
}

fn task(line: &str) -> Result<Task, String> {
    let cli = Cli::try_parse_from(["bench"].into_iter().chain(line.split(' ')));
    cli.map(|cli| cli.command.task()).map_err(|error| error.to_string())
}

#[test]
fn ping_as_in_the_published_figures_is_the_default() {
    let task = task("ping a netns/b").unwrap();
    let duration = Duration::from_secs(10);
    assert_eq!(task.measurement, Measurement::Ping { size: 256, interval_us: 1000, duration });
    assert_eq!(
        (task.settings.size, task.settings.interval_us, task.settings.repeats),
        (Some(256), Some(1000), 1)
    );
    assert_eq!(task.pair.receiver.to_string(), "netns/b");
    assert_eq!(task.versus, None);
}

#[test]
fn patterns_name_three_sizes() {
    let sizes = |line: &str| {
        let settings = task(line).unwrap().settings;
        (settings.pattern, settings.socket_size, settings.send_size.unwrap(), settings.receive_size.unwrap())
    };
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(sizes("stream a b"), (named("default"), Some(8192), 8192, 8192));
    assert_eq!(sizes("stream a b --pattern file"), (named("file"), Some(8192), 4096, 4096));
    assert_eq!(sizes("stream a b --pattern bulk"), (named("bulk"), Some(65536), 8192, 8192));
    assert_eq!(sizes("stream a b --pattern auto"), (named("auto"), None, 65536, 65536));
    assert_eq!(sizes("stream a b --pattern bulk --send-size 1000"), (None, Some(65536), 1000, 8192));
    assert_eq!(sizes("stream a b --pattern bulk --send-size 8192").0, named("bulk"));
}

#[test]
fn a_second_pair_has_its_own_address() {
    let task = task("rr a b --versus agent:/x host --address 10.0.0.1 --versus-address 10.0.0.2 --repeat 5")
        .unwrap();
    let versus = task.versus.unwrap();
    assert_eq!((versus.sender, versus.receiver), (EndPoint::Agent("/x".into()), EndPoint::Host));
    assert_eq!(task.pair.address, Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(versus.address, Some(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(task.settings.repeats, 5);
}

#[test]
fn impossible_measurements_are_refused() {
    for line in [
        "ping a",
        "ping a b --interval 0",
        "ping a b --size 65001",
        "ping a b --duration 0",
        "ping a b --duration nan",
        "rr a b --size 0",
        "rr a b --repeat 0",
        "rr a b --versus c",
        "rr a b --versus-address 10.0.0.1",
        "stream a b --pattern bogus",
        "stream a b --sessions 257",
        "stream a netns/..",
    ] {
        assert!(task(line).is_err(), "{line}");
    }
    assert_eq!(task("ping a b --interval 0.5").unwrap().settings.interval_us, Some(500));
}
