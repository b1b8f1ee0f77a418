//! Scenarios that do not run in each way.

/// Scenarios in which another program has to know the peer of a connection. The names of the
/// relay's sockets, by which the fabric knows its connections, tell it another one.
pub(crate) const NOT_BY_RINGS: [&str; 1] = ["another_program_inherits"];

/// Scenarios that move bytes, so that connections must get channels.
pub(crate) const BY_RINGS: [&str; 36] = [
    "bulk_and_half_close",
    "flags_of_recv",
    "pieces",
    "end_of_the_other_side",
    "peeked_and_truncated",
    "many_unread",
    "connect_while_watched",
    "asynchronous_programs",
    "request_in_two_writes",
    "order_of_processes",
    "poll_and_select_of_bytes",
    "epoll_of_bytes",
    "edges_of_bytes",
    "reads_that_wait",
    "full_without_waiting",
    "child_and_parent_take_turns",
    "two_threads_wait_for_one_connection",
    "messages_at_once",
    "one_thread_gets_the_only_event",
    "one_thread_gets_an_edge",
    "instances_are_watched",
    "closed_entries_of_poll",
    "receives_are_interrupted",
    "unused_entries_of_poll",
    "select_beyond_its_usual_size",
    "poll_for_the_end_only",
    "shutdown_wakes_a_writer",
    "beside_a_child_that_was_killed",
    "one_event_at_a_time",
    "child_of_vfork_closes_the_instance",
    "child_closes_everything_unseen",
    "child_writes_after_an_unseen_close",
    "child_has_a_pipe_at_the_number",
    "child_has_a_socket_at_the_number",
    "child_may_not_ask_for_options",
    "messages_pass_a_connection",
];

/// Scenarios that also run with a fabric that looks at a ring of a program only after a bell.
pub(crate) const WITH_BELLS: [&str; 2] =
    ["child_closes_everything_unseen", "child_writes_after_an_unseen_close"];

/// Scenarios that are as with TCP only if small writes are gathered.
pub(crate) const ONLY_GATHERED: [&str; 1] = ["corked"];

/// Scenarios about what only `AF_VSOCK` carries. `tests/tests/guest/preload.rs` runs them.
pub(crate) const IN_GUESTS: [&str; 2] = ["source_ports", "families"];

/// Scenarios that stay TCP, with the reason that the library prints.
pub(crate) const REFUSED: [(&str, &str); 2] = [
    ("watched_twice", "more than one epoll instance watches its socket"),
    ("signals_wanted", "the program requests signals"),
];
