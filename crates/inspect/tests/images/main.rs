//! Whole images: hostile and valid ones of the corpus, those that `qemu-img` makes, and any bytes.

mod any_bytes;
mod corpus;
mod counting;
mod legitimate;
mod overlay;
mod program;
mod qemu_img;
