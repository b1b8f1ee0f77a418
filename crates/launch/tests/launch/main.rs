//! The real `taut-launch`, started as `tautd` starts it, with shell scripts and a hostile program
//! in a VM's place. The tests need root, as the launcher does.

mod acts;
mod confirm;
mod cost;
mod failures;
mod fixture;
mod skeleton;
mod walls;
