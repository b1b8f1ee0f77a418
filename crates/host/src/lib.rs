//! The Linux host: observe, apply, restore.
