//! This instance among others that sell the same stock: its name, and how it shares the budget.

use super::{ServeError, seed};
use crate::config::LeasePlan;
use std::fs;
use weir_core::limits::INSTANCE_BYTES_MAX;
use weir_core::redis::clerk::lease::LeaseConfig;
use weir_core::redis::desk::DeskConfig;

/// `port`: of the public listener, as it is bound.
pub(super) fn leases(plan: &LeasePlan, port: u16) -> Result<LeaseConfig, ServeError> {
    let limiter = match &plan.limiter {
        None => None,
        Some(limiter) => Some(DeskConfig {
            seed: seed()?,
            ..limiter.desk.clone()
        }),
    };
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let named = plan.instance.clone();
    Ok(LeaseConfig {
        instance: named.unwrap_or_else(|| default_name(host.trim(), port)),
        version: plan.version,
        weight: plan.weight,
        weights: plan.weights,
        limiter,
    })
}

/// The host's name and the port: two processes of one host cannot both listen there, unless one takes over from the
/// other. A host name that is too long keeps its end, where numbers are.
fn default_name(host: &str, port: u16) -> String {
    let end = format!(":{port}");
    let visible: String = host.chars().filter(char::is_ascii_graphic).collect();
    let from = visible.len().saturating_sub(INSTANCE_BYTES_MAX - end.len());
    format!("{}{end}", &visible[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_host_and_port_and_fits() {
        assert_eq!(default_name("shop-a-1", 8080), "shop-a-1:8080");
        assert_eq!(default_name("", 80), ":80");
        assert_eq!(default_name("a b\u{e4}c", 80), "abc:80");
        let long = format!("{}-17", "x".repeat(80));
        let name = default_name(&long, 65_535);
        assert_eq!(name.len(), INSTANCE_BYTES_MAX);
        assert!(name.ends_with("x-17:65535"), "{name}");
    }
}
