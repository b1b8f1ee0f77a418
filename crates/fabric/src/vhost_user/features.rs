//! Protocol features of vhost-user.

use vhost::vhost_user::message::VhostUserProtocolFeatures;

/// The protocol features offered by a device with this configuration space.
///
/// `CONFIG` is offered only with a configuration space: some front ends refuse a device that offers
/// `CONFIG` without one.
pub fn protocol(config_space: &[u8]) -> u64 {
    let all = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::STATUS;
    let config = VhostUserProtocolFeatures::CONFIG;
    if config_space.is_empty() { all.bits() } else { (all | config).bits() }
}
