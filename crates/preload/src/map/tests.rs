use super::*;

fn map(text: &str) -> Map {
    Map::parse(text, Path::new("test.map")).unwrap()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn peer<'a>(map: &'a Map, to: &str) -> Option<(&'a Target, u32)> {
    let to = address(to);
    map.peer(to).map(|peer| (&peer.target, peer.vmci_port(to.port())))
}

#[test]
fn the_first_matching_peer_counts() {
    let map = map("10.0.0.7:6379 -> cid 12 port 7000\n10.0.0.7:* → cid 13 # the rest\n\n[fd00::7]:* -> host");
    assert_eq!(peer(&map, "10.0.0.7:6379"), Some((&Target::Cid(12), 7000)));
    assert_eq!(peer(&map, "10.0.0.7:80"), Some((&Target::Cid(13), 80)));
    assert_eq!(
        peer(&map, "[::ffff:10.0.0.7]:80"),
        Some((&Target::Cid(13), 80)),
        "an IPv4 peer by an IPv6 socket"
    );
    assert_eq!(peer(&map, "[fd00::7]:443"), Some((&Target::Cid(2), 443)));
    assert_eq!(peer(&map, "10.0.0.8:80"), None);
}

#[test]
fn a_unix_target_is_a_path() {
    let map = map("10.0.0.9:* -> unix /run/taut/web1.sock");
    assert_eq!(peer(&map, "10.0.0.9:22"), Some((&Target::Unix("/run/taut/web1.sock".into()), 22)));
}

#[test]
fn the_wildcard_excludes_loopback_addresses() {
    let map = map("listen *");
    assert_eq!(map.entrance(address("0.0.0.0:80")), Some(&Entrance::Vsock(None)));
    assert_eq!(map.entrance(address("10.0.0.6:80")), Some(&Entrance::Vsock(None)));
    assert_eq!(map.entrance(address("127.0.0.1:80")), None);
    assert_eq!(map.entrance(address("[::1]:80")), None);
}

#[test]
fn listen_lines_match_what_they_name() {
    let map =
        map("listen 0.0.0.0:6379 -> vsock port 7000\nlisten 127.0.0.1:* -> unix /run/x.sock\nlisten *:80");
    assert_eq!(map.entrance(address("0.0.0.0:6379")), Some(&Entrance::Vsock(Some(7000))));
    assert_eq!(map.entrance(address("[::]:6379")), Some(&Entrance::Vsock(Some(7000))));
    assert_eq!(map.entrance(address("10.0.0.6:6379")), None);
    assert_eq!(map.entrance(address("127.0.0.1:5")), Some(&Entrance::Unix("/run/x.sock".into(), None)));
    assert_eq!(map.entrance(address("10.0.0.6:80")), Some(&Entrance::Vsock(None)));
}

#[test]
fn a_machine_has_the_address_of_its_line() {
    let map = map(
        "10.0.0.7:6379 -> cid 12 port 7000\n10.0.0.7:* -> cid 12\n[fd00::7]:* -> cid 12\nlocal 10.0.0.6\nlocal fd00::6",
    );
    let twelve = Machine::Cid(12);
    assert_eq!(map.address_of(twelve, Some(false)), Some("10.0.0.7".parse().unwrap()));
    assert_eq!(map.address_of(twelve, None), Some("10.0.0.7".parse().unwrap()), "the first");
    assert_eq!(map.address_of(twelve, Some(true)), Some("fd00::7".parse().unwrap()));
    assert_eq!(map.address_of(Machine::Cid(13), None), None);
    assert_eq!(map.local("::".parse().unwrap()), Some("fd00::6".parse().unwrap()));
}

#[test]
fn patience_is_read() {
    assert_eq!(map("").patience, PATIENCE);
    assert_eq!(map("patience 200 ms").patience, Duration::from_millis(200));
}

#[test]
fn queue_pairs_are_on_and_calls_do_not_look_unless_a_line_says_so() {
    assert!(map("").rings && map("rings on").rings && !map("rings off").rings);
    for (text, time) in [("", 0), ("poll 50us", 50), ("poll 20 us", 20), ("poll 0us", 0)] {
        assert_eq!(map(text).poll, Duration::from_micros(time), "{text}");
    }
}

#[test]
fn errors_name_their_line_and_a_hint() {
    for (text, cause) in [
        ("10.0.0.7 -> cid 12", "`10.0.0.7` has no port"),
        ("10.0.0.7:0 -> cid 12", "`10.0.0.7:0` has a port that is neither 1 to 65535 nor *"),
        ("10.0.0.7:65536 -> cid 12", "`10.0.0.7:65536` has a port that is neither 1 to 65535 nor *"),
        (
            "db:80 -> cid 12",
            "`db:80` has no valid IPv4 address (names are not resolved; IPv6 addresses need brackets)",
        ),
        ("[fd00::7:80 -> cid 12", "`[fd00::7:80` lacks a closing bracket"),
        ("[fd00::g]:80 -> cid 12", "`[fd00::g]:80` has no valid IPv6 address"),
        ("*:80 -> cid 12", "`*:80` is not the address of one machine"),
        ("0.0.0.0:80 -> cid 12", "`0.0.0.0:80` is not the address of one machine"),
        ("10.0.0.7:80 cid 12", "`->` expected, not `cid`"),
        ("10.0.0.7:80 ->", "`` is not a target"),
        ("10.0.0.7:80 -> vm web1", "`vm` is not a target"),
        ("10.0.0.7:80 -> cid 0", "`0` is not a context ID"),
        ("10.0.0.7:80 -> cid 4294967295", "`4294967295` is not a context ID"),
        ("10.0.0.7:80 -> cid", "`` is not a context ID"),
        ("10.0.0.7:80 -> unix run/x", "`run/x` is not an absolute path of at most 96 bytes"),
        ("10.0.0.7:* -> cid 12 port 80", "many ports cannot all become one"),
        ("10.0.0.7:80 -> cid 12 port 0", "`0` is not a VMCI port"),
        ("10.0.0.7:80 -> cid 12 13", "`13` is superfluous"),
        ("listen", "no address"),
        ("listen * vsock", "`->` expected, not `vsock`"),
        ("listen *:80 -> tcp", "`tcp` is not an entrance"),
        ("listen * -> vsock port 80", "many ports cannot all become one"),
        ("local 0.0.0.0", "`0.0.0.0` is not this machine's address"),
        ("local", "`` is not this machine's address"),
        ("patience 0 ms", "`0` is not a timeout"),
        ("patience 5001 ms", "`5001` is not a timeout"),
        ("patience 1 s", "`1` is not a timeout"),
        ("rings", "`` is neither on nor off"),
        ("rings maybe", "`maybe` is neither on nor off"),
        ("poll 51us", "`51` is not such a time"),
        ("poll us", "`` is not such a time"),
        ("poll 5", "no unit"),
        ("poll 5 ms", "no unit"),
    ] {
        let error = Map::parse(&format!("# first\n{text}\n"), Path::new("/etc/x.map")).expect_err(text);
        assert_eq!((error.line, error.cause.as_str()), (2, cause), "{text}");
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("/etc/x.map:2: {cause}\nhint: ")), "{shown}");
        assert!(!error.hint.is_empty());
    }
}

#[test]
fn a_line_that_never_matches_is_refused() {
    let error = Map::parse("10.0.0.7:* -> cid 12\n10.0.0.7:* -> cid 13", Path::new("x")).unwrap_err();
    assert_eq!((error.line, error.cause.as_str()), (2, "an earlier line already has 10.0.0.7:*"));
}

#[test]
fn a_missing_file_is_an_error_of_the_whole_file() {
    let error = Map::read(Path::new("/nonexistent/vmci.map")).unwrap_err();
    assert_eq!(error.line, 0);
    assert!(error.to_string().starts_with("/nonexistent/vmci.map: No such file"), "{error}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        let _ = Map::parse(&text, Path::new("x"));
    }

    #[test]
    fn words_of_the_grammar_in_any_order_are_read_or_refused(words in proptest::collection::vec(
        proptest::sample::select(vec!["listen", "local", "patience", "rings", "poll", "->", "cid", "unix", "vsock", "port", "host", "*", "1", "ms", "/x",
            "10.0.0.7:80", "[::1]:*", "*:80", "#", "\n"]), 0..12)) {
        let _ = Map::parse(&words.join(" "), Path::new("x"));
    }
}
