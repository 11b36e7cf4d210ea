//! Which NUMA nodes the machine has.

/// The nodes that have memory, as the kernel lists them, such as `0-1,4`. `None` where it does not tell.
pub(super) fn list() -> Option<String> {
    let text = std::fs::read_to_string("/sys/devices/system/node/has_memory").ok()?;
    Some(text.trim().to_owned())
}

/// Whether a list names a node. `None` where it cannot be read.
pub(super) fn is_among(node: u32, list: &str) -> Option<bool> {
    let mut found = false;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        found |= (first..=last).contains(&node);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(is_among(0, "0"), Some(true));
        assert_eq!(is_among(1, "0"), Some(false));
        assert_eq!(is_among(3, "0-1,3,7-9"), Some(true));
        assert_eq!(is_among(8, "0-1,3,7-9"), Some(true));
        assert_eq!(is_among(6, "0-1,3,7-9"), Some(false));
        assert_eq!(is_among(0, ""), None);
        assert_eq!(is_among(0, "0-x"), None);
    }
}
