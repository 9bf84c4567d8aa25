//! Every capacity of the core, in one place (style §3): at each there is a Reason, a status and a counter.
