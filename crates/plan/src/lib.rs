//! The rules: a pure function from desired and observed state to actions.
