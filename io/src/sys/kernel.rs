//! The kernel's release, for error messages.

/// As `uname -r` prints it; "unknown" without /proc.
pub fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
