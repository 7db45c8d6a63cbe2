"""What runs when: dispatcher → runner → settler, with heartbeat, recovery and wake-ups beside."""
