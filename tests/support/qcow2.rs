//! Image files for tests.

/// A qcow2 of version 2 and 1 MiB in which nothing is written: header, empty tables, refcounts of four clusters.
pub fn empty() -> Vec<u8> {
    const CLUSTER: usize = 65536;
    let mut image = vec![0; 4 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb");
    put(4, &2u32.to_be_bytes());
    put(20, &16u32.to_be_bytes()); // bits of a cluster
    put(24, &(1u64 << 20).to_be_bytes()); // size
    put(36, &1u32.to_be_bytes()); // entries of the first table
    put(40, &(3 * CLUSTER as u64).to_be_bytes()); // the first table
    put(48, &(CLUSTER as u64).to_be_bytes()); // refcount table
    put(56, &1u32.to_be_bytes()); // clusters of it
    put(CLUSTER, &(2 * CLUSTER as u64).to_be_bytes());
    for cluster in 0..4 {
        put(2 * CLUSTER + 2 * cluster, &1u16.to_be_bytes());
    }
    image
}
