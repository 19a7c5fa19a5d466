"""Words and shapes of the verbs and actions of incidents."""

from __future__ import annotations

EVENT_WORDS = {
    "opened": "Opened",
    "extended": "Seen again",
    "escalated": "Severity raised",
    "no_data": "No data since",
    "recovered": "Recovered, watching",
    "relapsed": "Came back",
    "acknowledged": "Acknowledged",
    "unacknowledged": "Acknowledgement taken back",
    "acknowledgement_expired": "Acknowledgement expired",
    "assigned": "Assigned",
    "snoozed": "Snoozed",
    "commented": "Comment",
    "labelled": "Labelled",
    "resolved": "Resolved",
    "reopened": "Reopened",
    "linked": "Linked",
    "paged": "Paged",
}
EVENT_GLYPH = {
    "opened": ("crit", "c-fail"),
    "escalated": ("crit", "c-fail"),
    "relapsed": ("crit", "c-fail"),
    "extended": ("risk", "c-risk"),
    "no_data": ("unk", "t2"),
    "recovered": ("ok", "c-ok"),
    "acknowledged": ("check", "c-ok"),
    "resolved": ("check", "c-ok"),
}
ACTION_WORDS = {
    "none": "Nothing to do",
    "restart_app": "Restart the application",
    "reset_gpu": "Reset the GPU",
    "reboot_node": "Reboot the node",
    "drain": "Drain the node",
    "replace": "Replace the part",
    "check_cooling": "Check the cooling",
    "check_power": "Check the power",
    "check_network": "Check the network",
    "check_storage": "Check the storage",
    "check_exporter": "Check the exporter",
    "contact_support": "Contact the vendor's support",
}
