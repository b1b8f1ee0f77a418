//! VM definitions, .vmx reader, QEMU command line, QMP, guest image.
