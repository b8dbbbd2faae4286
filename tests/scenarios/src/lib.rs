// SPDX-License-Identifier: GPL-2.0-only

//! Tests the kernel module by real system calls. Each file has the scenarios of one theme.
//!
//! Behaviours that are compared with TCP's are in `tests/parity`; load, faults and attacks are in
//! `tests/stress`.

mod bad_input;
mod busy_polling;
#[cfg(target_arch = "x86_64")]
mod channels;
mod compat;
mod datagram_ring;
mod device_changes;
mod device_events;
mod device_kinds;
mod device_mtu;
mod device_namespaces;
mod device_overlays;
mod edp_calls;
mod edp_echo;
mod edp_ports;
mod edp_query;
mod edp_sums;
mod edp_zero_copy;
mod encapsulations;
mod enet_run;
mod enet_tool;
mod error_queue;
mod esp_bulk;
mod esp_calls;
mod esp_checksum;
mod esp_connections;
mod esp_cookies;
mod esp_faults;
mod esp_forgotten;
mod esp_grants;
mod esp_masks;
mod esp_options;
mod esp_orphans;
mod esp_records;
mod esp_runs;
mod esp_selective;
mod esp_short_messages;
mod esp_stamps;
mod esp_vanish;
mod examples;
mod flow_control;
mod hostile_frames;
#[cfg(target_arch = "x86_64")]
mod ia32;
mod isolation;
mod joining;
mod large_packets;
mod library;
mod lifetimes;
mod macsec;
mod manual;
mod mapped_attempts;
mod mapped_buffers;
mod mapped_containers;
mod mapped_disconnecting;
mod mapped_esp;
mod mapped_first;
mod mapped_iscsi;
mod mapped_kernel_users;
mod mapped_listening;
mod mapped_no_ipv6;
mod mapped_objections;
mod mapped_options;
mod mapped_tcp;
mod mapped_v6;
mod mapped_without;
mod module;
mod netgauge_lab;
mod netgauge_patterns;
mod netgauge_transports;
mod network_cards;
mod order_of_turns;
mod proc_files;
mod puts;
mod receive_ring;
mod receive_steering;
mod ssocks;
mod statistics;
mod switch;
mod sysctl;
mod sysctl_effect;
mod tracing;
mod transmit_queues;
mod tun;
mod virtual_machines;
mod zero_copy;

use guest::harness::Scenario;

/// Returns all scenarios of this crate, in the order in which they run.
pub fn all() -> Vec<&'static Scenario> {
    [
        module::ALL,
        lifetimes::ALL,
        edp_calls::ALL,
        edp_ports::ALL,
        edp_echo::ALL,
        edp_query::ALL,
        edp_sums::ALL,
        edp_zero_copy::ALL,
        error_queue::ALL,
        esp_connections::ALL,
        esp_cookies::ALL,
        esp_grants::ALL,
        esp_options::ALL,
        esp_checksum::ALL,
        esp_masks::ALL,
        esp_calls::ALL,
        #[cfg(target_arch = "x86_64")]
        channels::ALL,
        compat::ALL,
        mapped_tcp::ALL,
        mapped_v6::ALL,
        mapped_no_ipv6::ALL,
        mapped_esp::ALL,
        mapped_first::ALL,
        mapped_listening::ALL,
        mapped_attempts::ALL,
        mapped_containers::ALL,
        mapped_disconnecting::ALL,
        mapped_objections::ALL,
        mapped_buffers::ALL,
        mapped_iscsi::ALL,
        mapped_kernel_users::ALL,
        mapped_options::ALL,
        mapped_without::ALL,
        enet_run::ALL,
        bad_input::ALL,
        hostile_frames::ALL,
        isolation::ALL,
        datagram_ring::ALL,
        device_changes::ALL,
        device_events::ALL,
        device_kinds::ALL,
        transmit_queues::ALL,
        esp_records::ALL,
        esp_runs::ALL,
        esp_selective::ALL,
        esp_short_messages::ALL,
        puts::ALL,
        receive_ring::ALL,
        receive_steering::ALL,
        busy_polling::ALL,
        device_mtu::ALL,
        tun::ALL,
        joining::ALL,
        virtual_machines::ALL,
        network_cards::ALL,
        macsec::ALL,
        device_namespaces::ALL,
        device_overlays::ALL,
        large_packets::ALL,
        encapsulations::TABLE,
        encapsulations::ALL,
        library::ALL,
        examples::ALL,
        enet_tool::ALL,
        proc_files::ALL,
        manual::ALL,
        ssocks::ALL,
        statistics::ALL,
        switch::ALL,
        netgauge_lab::ALL,
        sysctl::ALL,
        sysctl_effect::ALL,
        tracing::ALL,
        esp_bulk::ALL,
        zero_copy::ALL,
        esp_faults::ALL,
        flow_control::ALL,
        order_of_turns::ALL,
        esp_orphans::ALL,
        esp_stamps::ALL,
        esp_vanish::ALL,
        esp_forgotten::ALL,
        netgauge_transports::ALL,
        netgauge_patterns::ALL,
    ]
    .into_iter()
    .flatten()
    .collect()
}
